"""Sanitize MJCF for MuJoCo: checked, includes inlined, and only what kinematics and inertia need.

MuJoCo opens whatever a file names, so it never sees the file. It gets text written here and, for
bodies whose inertia must come from meshes, those meshes as bytes, each read from inside the file's
folder. Geoms stay only where a body has no `<inertial>` of its own; what moves nothing and weighs
nothing (sites, sensors, actuators, materials, …) is left out.

Every body and joint carries its number here as `user` data, so that what MuJoCo compiled can be
traced to its element, through `<replicate>` and `<attach>` too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from thetahat.errors import MalformedInput, RefusedForSafety
from thetahat.model.io.mjcf_elements import (
    ASSETS_LEFT_OUT,
    COMPILER_LEFT_OUT,
    DEFORMABLE,
    GEOM_LEFT_OUT,
    JOINTS,
    MAX_COPIES,
    NOT_MODELLED,
    SECTIONS_LEFT_OUT,
    WEIGHTLESS,
    ancestors,
    body_containers,
    check_numbers,
    class_defaults,
    describe,
    joint_dofs,
    refused_inertial,
    strip_defaults,
    strip_option,
)
from thetahat.model.io.mjcf_includes import Chain, Folder, serialise
from thetahat.model.io.sanitized_mjcf import BodySource, Inertial, SanitizedMjcf
from thetahat.model.io.xml_reader import Document, Element, number, shown, vector

MAX_BODIES = 3_000
MAX_WORK = 1e9  # degrees of freedom × Σ their depths; MuJoCo takes 5 s for 1.6e9


def sanitize(document: Document, unsaved: Mapping[Path, bytes] | None = None) -> SanitizedMjcf:
    """Check an MJCF document and everything it includes, and write what MuJoCo may see of it.

    unsaved: files that it may include as if they were in its folder, by their resolved paths.
    """
    source = SanitizedMjcf(Folder.of(document, unsaved))
    main = _Model(source, document, source.folder.start)
    source.given.text, source.given.lines = serialise(main.root)
    source.name = main.root.attrib.get("model", "").strip() or document.path.stem
    source.total_mass = main.total_mass
    return source


class _Model:
    """The main file, or one it attaches, on its way to MuJoCo: `root` is the tree that is left."""

    def __init__(self, source: SanitizedMjcf, document: Document, chain: Chain) -> None:
        if document.root.tag != "mujoco":
            part = (
                " (a part that another file includes; load that file)"
                if document.root.tag == "mujocoinclude"
                else ""
            )
            raise MalformedInput(
                f"{document.root.place}: the root element is <{document.root.tag}>{part}; an MJCF"
                " file has <mujoco>"
            )
        self.source, self.chain = source, chain
        self.base = chain[-1].parent
        self.root = source.folder.inlined(document, chain)
        self._read_compiler()
        self.geom_defaults = class_defaults(self.root, "geom")
        self.meshes: dict[str, Element] = {}  # name → the geom that needs it
        self.models: dict[str, tuple[int, int]] = {}  # name → bodies and copies in it

        self._note_what_is_left_out()
        self._load_attached()
        self.root.children = [
            child for child in self.root.children if child.tag not in SECTIONS_LEFT_OUT
        ]
        for world in self.root.findall("worldbody"):
            self._walk(world)
        self._strip_sections()
        for element in self.root.iter():
            if element.tag != "flag":  # its gravity is a switch
                check_numbers(element)

    # -- sections ----------------------------------------------------------------------------------

    def _read_compiler(self) -> None:
        """The settings that decide what inertia comes from; a later `<compiler>` overrides an
        earlier one.
        """
        merged: dict[str, str] = {}
        view = self.root
        for element in self.root.findall("compiler"):
            check_numbers(element)
            merged.update(element.attrib)
            view = element
        self.source.elements.compilers.append(self.root.findall("compiler"))
        self.compiler = merged
        settings = view.like(merged, parent=self.root, tag="compiler")
        self.total_mass = max(0.0, number(settings, "settotalmass", 0.0))
        self.groups = vector(settings, "inertiagrouprange", 2, (0.0, 5.0))
        self.from_geoms = merged.get("inertiafromgeom", "auto")
        # Where MuJoCo is told to repair inertia, or computes damping from it, it has to see the
        # numbers of the file.
        repairs = (
            merged.get("balanceinertia") == "true"
            or number(settings, "boundmass", 0.0) > 0.0
            or number(settings, "boundinertia", 0.0) > 0.0
        )
        self.may_substitute = not repairs and not any(
            "springdamper" in element.attrib for element in self.root.iter()
        )

    def _note_what_is_left_out(self) -> None:
        for section in self.root.children:
            if section.tag in NOT_MODELLED:
                self.source.leave_out(section.tag, *(describe(child) for child in section.children))
            elif section.tag == "option":
                self.source.leave_out(
                    "fluid",
                    *(key for key in ("density", "viscosity") if number(section, key, 0.0) != 0.0),
                )

    def _load_attached(self) -> None:
        """Prepare every model that an `<attach>` uses, and hand it to MuJoCo as bytes."""
        wanted = {
            element.attrib.get("model") for element in self.root.iter() if element.tag == "attach"
        }
        for element in (
            child for section in self.root.findall("asset") for child in section.findall("model")
        ):
            name = element.attrib.get("name") or PurePosixPath(element.attrib.get("file", "")).stem
            if name not in wanted or name in self.models:
                continue
            document, chain = self.source.folder.read(
                element, self.base / self.compiler.get("assetdir", ""), self.chain
            )
            counts = self.source.counts
            before = counts.bodies, counts.copies
            model = _Model(self.source, document, chain)
            self.models[name] = (counts.bodies - before[0], counts.copies - before[1])
            # they count where they are attached
            counts.bodies, counts.copies = before
            self.source.attached = True
            key = self._hand_over(element, "model", serialise(model.root)[0].encode(), ".xml")
            element.attrib = {"name": name, "file": key}

    def _hand_over(self, element: Element, what: str, content: bytes, suffix: str) -> str:
        """Give MuJoCo a file as bytes, under a name of ours."""
        given = self.source.given
        key = f"{what}{len(given.assets)}{suffix}"
        given.assets[key], given.files[key] = content, element.attrib["file"]
        return key

    def _strip_sections(self) -> None:
        for section in self.root.children:
            match section.tag:
                case "asset":
                    section.children = [
                        child for child in section.children if self._keep_asset(child)
                    ]
                case "default":
                    strip_defaults(section)
                case "compiler":
                    section.children = []
                    section.attrib = {
                        k: v for k, v in section.attrib.items() if k not in COMPILER_LEFT_OUT
                    }
                case "option":
                    strip_option(section)

    def _keep_asset(self, element: Element) -> bool:
        if element.tag == "model":
            return element.attrib.get("name") in self.models
        if element.tag != "mesh":
            return element.tag not in ASSETS_LEFT_OUT
        file = element.attrib.get("file", "").replace("\\", "/")
        name = element.attrib.get("name") or PurePosixPath(file).stem
        if name not in self.meshes:
            return False
        element.attrib["name"] = name
        element.attrib.pop("material", None)
        element.children = []
        if file:
            element.attrib["file"] = (
                PurePosixPath(file).name if self.compiler.get("strippath") == "true" else file
            )
            self._load_mesh(element, self.meshes[name])
        return True

    def _load_mesh(self, element: Element, geom: Element) -> None:
        directory = (self.compiler.get("meshdir") or self.compiler.get("assetdir") or "").replace(
            "\\", "/"
        )
        mesh = self.source.folder.mesh(
            element, [self.base / directory, element.source.parent.resolve()]
        )
        if mesh is None:
            body = next(parent for parent in ancestors(geom) if parent.tag == "body")
            where = str(PurePosixPath(directory) / element.attrib["file"])
            raise MalformedInput(
                f"{element.place}: mesh {shown(where)} is not there, and {body.path} (line"
                f" {body.line}) takes its inertia from it; put the mesh there or give the body an"
                " <inertial>"
            )
        element.attrib["file"] = self._hand_over(element, "mesh", *mesh)

    # -- the kinematic tree ------------------------------------------------------------------------

    def _walk(self, world: Element) -> None:
        """Visit every body: count it, number it, and leave in it only what gives it inertia."""
        stack = [(world, world.attrib.get("childclass"), False, 1, 0)]
        while stack:
            body, childclass, moving, copies, depth = stack.pop()
            containers = list(
                body_containers(body, body.attrib.get("childclass", childclass), copies)
            )
            content = [
                (child, inherited, times)
                for container, inherited, times in containers
                for child in container.children
            ]
            joints = [child for child, _, _ in content if child.tag in JOINTS]
            moving = moving or bool(joints)
            depth += sum(joint_dofs(joint) for joint in joints)
            self._count(body, copies, depth, joints=joints)
            self._count_copies(
                body,
                sum(times for container, _, times in containers if container.tag == "replicate"),
            )
            kept = self._kept_geoms(body, content, moving)
            for container, _, _ in containers:
                container.children = [
                    c
                    for c in container.children
                    if c.tag not in WEIGHTLESS and (c.tag != "geom" or id(c) in kept)
                ]
            if body is not world:
                self._number(body, content, joints, has_geoms=bool(kept))
            for child, inherited, times in content:
                if child.tag == "body":
                    stack.append((child, inherited, moving, times, depth))
                elif child.tag == "attach":
                    bodies, parts = self.models.get(child.attrib.get("model", ""), (0, 0))
                    self._count(child, times, depth, bodies=bodies)
                    self._count_copies(child, times * parts)
                elif child.tag in DEFORMABLE or child.tag == "plugin":
                    self.source.leave_out(child.tag, describe(child))

    def _count(
        self,
        at: Element,
        copies: int,
        depth: int,
        *,
        joints: list[Element] | None = None,
        bodies: int = 1,
    ) -> None:
        """Refuse what `<replicate>`, or sheer size, would make of a small file."""
        counts = self.source.counts
        counts.bodies += 0 if at.tag == "worldbody" else copies * bodies
        if counts.bodies > MAX_BODIES:
            raise RefusedForSafety(
                f"{at.place}: the model has more than {MAX_BODIES:,} bodies, which no robot needs;"
                " split it"
            )
        dofs = copies * sum(joint_dofs(joint) for joint in joints or ())
        counts.dofs += dofs
        counts.dof_depths += dofs * depth
        if counts.dofs * counts.dof_depths > MAX_WORK:
            raise RefusedForSafety(
                f"{at.place}: {counts.dofs:,} degrees of freedom in chains this long would"
                " keep MuJoCo busy for too long; split the model"
            )

    def _count_copies(self, at: Element, copies: int) -> None:
        self.source.counts.copies += copies
        if self.source.counts.copies > MAX_COPIES:
            raise RefusedForSafety(
                f"{at.place}: this makes more than {MAX_COPIES:,} geoms or copies; give bodies an"
                " <inertial> in place of geoms"
            )

    def _kept_geoms(
        self, body: Element, content: list[tuple[Element, str | None, int]], moving: bool
    ) -> set[int]:
        """Identities of the geoms that MuJoCo needs for this body's inertia."""
        for child, _, _ in content:  # MuJoCo never sees those without mass
            if any("nan" in value.lower() for value in child.attrib.values()):
                check_numbers(child)
        inertial = any(child.tag == "inertial" for child, _, _ in content)
        needed = self.from_geoms != "false" and (self.from_geoms == "true" or not inertial)
        if body.tag == "worldbody" or not needed or not (moving or self.total_mass):
            return set()
        kept: set[int] = set()
        for child, childclass, times in content:
            if child.tag != "geom":
                continue
            attributes = {
                **self.geom_defaults.get(child.attrib.get("class", childclass) or "main", {}),
                **child.attrib,
            }
            if not self._has_mass(child, attributes):
                continue
            kept.add(id(child))
            self._count_copies(child, times)
            if "mesh" in attributes:
                self.meshes.setdefault(attributes["mesh"], child)
            child.attrib = {k: v for k, v in child.attrib.items() if k not in GEOM_LEFT_OUT} | {
                "contype": "0",
                "conaffinity": "0",
            }
            child.children = []
        return kept

    def _has_mass(self, geom: Element, attributes: dict[str, str]) -> bool:
        """Whether a geom adds inertia: not a plane, not weightless, and in a group that counts."""
        if attributes.get("type", "sphere") in ("plane", "hfield"):
            return False
        view = geom.like(attributes, parent=geom.parent)
        if number(view, "mass", 1.0) == 0.0 or (
            "mass" not in attributes and number(view, "density", 1.0) == 0.0
        ):
            return False
        return self.groups[0] <= number(view, "group", 0.0) <= self.groups[1]

    def _number(
        self,
        body: Element,
        content: list[tuple[Element, str | None, int]],
        joints: list[Element],
        *,
        has_geoms: bool,
    ) -> None:
        """Give body and joints their user data, and take an inertia out of MuJoCo's hands that it
        would refuse.
        """
        for joint in joints:
            if joint.tag == "joint":  # <freejoint> has no user data
                joint.attrib["user"] = str(len(self.source.elements.joints))
                self.source.elements.joints.append(joint)
        inertial = next((child for child, _, _ in content if child.tag == "inertial"), None)
        stand_in = {"mass": "1", "diaginertia": "1 1 1"}
        substitute = None
        if inertial is not None and self.may_substitute and not has_geoms:
            substitute = refused_inertial(inertial)
            if substitute:
                inertial.attrib.pop("fullinertia", None)
                inertial.attrib |= stand_in
        elif inertial is None and self.may_substitute and not has_geoms and joints:
            substitute = Inertial()
            stand_in["pos"] = "0 0 0"
            body.children.append(body.like(stand_in, parent=body, tag="inertial"))
        body.attrib["user"] = str(len(self.source.elements.bodies))
        self.source.elements.bodies.append(
            BodySource(body, inertial, substitute, overridden=inertial is not None and has_geoms)
        )
