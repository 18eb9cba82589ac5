"use strict";
/* Draws figures {data, layout} in the colours of the page. Shared by reports and the live page. */
const thetahatFigures = (() => {
  const NARROW = 480; // [px] below it, letters and margins shrink
  const AXIS = /^[xyz]axis\d*$/;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function axisColours(axis, ink, grid) {
    return { gridcolor: grid, zerolinecolor: ink, linecolor: grid, tickcolor: grid, color: ink, ...axis };
  }

  /** The layout with text, grids and ground of the theme, fit for a node of this width [px]. */
  function themed(layout, width) {
    const ink = css("--ink"), quiet = css("--quiet"), grid = css("--grid"), raised = css("--raised");
    const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    const narrow = width < NARROW;
    const out = { ...layout, autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
    out.height = Math.round((layout.height || 340) * (narrow ? 1 : scale));
    if (layout.yaxis && layout.yaxis.scaleanchor) out.height = Math.min(out.height, Math.round(width + 24)); // a square
    out.font = { family: "system-ui, sans-serif", color: ink, size: (narrow ? 11 : 12) * scale };
    out.hoverlabel = { bgcolor: raised, bordercolor: quiet, font: { color: ink, size: 12 * scale } };
    out.legend = { ...layout.legend, bgcolor: "rgba(0,0,0,0)", font: { size: (narrow ? 11 : 12) * scale } };
    out.modebar = { bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: ink };
    for (const key of Object.keys(layout)) {
      if (AXIS.test(key)) out[key] = axisColours(layout[key], ink, grid);
    }
    if (layout.scene) {
      out.scene = { ...layout.scene };
      for (const key of ["xaxis", "yaxis", "zaxis"]) {
        out.scene[key] = { backgroundcolor: "rgba(0,0,0,0)", ...axisColours(layout.scene[key] || {}, quiet, css("--line")) };
      }
      if (narrow) out.height = Math.min(out.height, 400);
    } else if (window.matchMedia("(pointer: coarse)").matches) {
      out.dragmode = false; // a finger on a figure scrolls the page
    }
    return out;
  }

  /** Draw, or draw anew, in a node. */
  function draw(node, figure) {
    const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
    config.toImageButtonOptions = { format: "svg", filename: node.id || "figure" };
    const layout = themed(figure.layout, node.clientWidth);
    node.style.height = `${layout.height}px`;
    return Plotly.react(node, figure.data, layout, config);
  }

  return { draw, themed };
})();
