"use strict";
/* A report: figures are drawn when they come into view, choices of one group change together. */
(() => {
  const NEAR = "600px 0px"; // a figure this near to the window is drawn
  const drawn = new Set();
  const plots = [...document.querySelectorAll(".plot")];

  function show(node) {
    const source = document.getElementById(`${node.dataset.figure}-${node.dataset.panel}`);
    drawn.add(node);
    thetahatFigures.draw(node, JSON.parse(source.textContent)).then(() => { node.dataset.drawn = node.dataset.panel; });
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !drawn.has(entry.target)) show(entry.target);
    }
  }, { rootMargin: NEAR });
  plots.forEach((node) => watcher.observe(node));

  // -- choices ----------------------------------------------------------------

  const choices = [...document.querySelectorAll(".choice select")];

  function choose(select, index) {
    select.selectedIndex = index;
    const node = document.getElementById(select.dataset.plot);
    if (node.dataset.panel === select.value) return;
    node.dataset.panel = select.value;
    if (drawn.has(node)) show(node);
  }

  function chosen(select) {
    const label = select.options[select.selectedIndex].dataset.name;
    for (const other of choices) {
      if (other === select || (select.dataset.group && other.dataset.group === select.dataset.group)) {
        const index = [...other.options].findIndex((option) => option.dataset.name === label);
        if (index >= 0) choose(other, index);
      }
    }
  }

  for (const select of choices) {
    choose(select, select.selectedIndex); // a browser keeps a choice when a page is loaded again
    select.addEventListener("change", () => chosen(select));
    for (const button of select.parentElement.querySelectorAll("button")) {
      button.addEventListener("click", () => {
        const count = select.options.length;
        select.selectedIndex = (select.selectedIndex + Number(button.dataset.step) + count) % count;
        chosen(select);
      });
    }
  }

  // -- lines to copy ----------------------------------------------------------

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const lines = button.parentElement.querySelector("pre");
      try {
        await navigator.clipboard.writeText(lines.textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      } catch { // a page from a file may not write to the clipboard: the lines are selected instead
        window.getSelection().selectAllChildren(lines);
      }
    });
  }

  // -- theme and paper --------------------------------------------------------

  const redraw = () => drawn.forEach(show);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.print = "";
    document.querySelectorAll("details").forEach((each) => { each.open = true; });
    plots.forEach(show);
  });
  window.addEventListener("afterprint", () => { delete document.documentElement.dataset.print; redraw(); });

  // -- contents ---------------------------------------------------------------

  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const reader = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const link = links.get(entry.target.id);
      if (link && entry.isIntersecting) {
        links.forEach((each) => each.removeAttribute("aria-current"));
        link.setAttribute("aria-current", "true");
      }
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  document.querySelectorAll("main section").forEach((section) => reader.observe(section));
  const contents = document.querySelector("nav details");
  if (contents && !window.matchMedia("(min-width: 1100px)").matches) contents.open = false;
})();
