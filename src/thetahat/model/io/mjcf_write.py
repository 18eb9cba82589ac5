"""Write inertial and drive values into a copy of an MJCF file, all else byte for byte.

Where a value lies in an included (or attached) file, a copy of that file is written too, and the
`<include>` names the copy. MuJoCo's compiler settings can override what an `<inertial>` says, so
what was written is compiled again: a body that does not come out as wanted is written too, and
settings that stand in the way are switched off, each only where needed:

- `inertiafromgeom="true"` becomes `auto`, and an `<inertial>` that it had overridden gets the
  values that were in force;
- `settotalmass` becomes the new total, and values are written before its scaling;
- `boundmass`, `boundinertia` and `balanceinertia` are switched off where a new value falls outside
  of them;
- `springdamper`, from which MuJoCo computes a joint's damping by way of its inertia, gives way to
  the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from thetahat.errors import MalformedInput, UnphysicalRobot, UsageError
from thetahat.model import parameters
from thetahat.model.io.mjcf import body_of, body_parameters, compile_mjcf, joint_of
from thetahat.model.io.mjcf_inertial import (
    ORIENTATIONS,
    frame_poses,
    principal,
    quaternion_of,
    stated_inertial,
)
from thetahat.model.io.sanitized_mjcf import BodySource
from thetahat.model.io.write_back import restated, same_parameters
from thetahat.model.io.xml_edit import XmlEdit, attribute, digits
from thetahat.model.io.xml_reader import Document, Element, label, number, parse, read_xml, vector

# what a joint can state → its attribute
ATTRIBUTES = {"damping": "damping", "friction": "frictionloss", "armature": "armature"}
PASSES = 5
Key = tuple[Path, int]  # where an element stands: its file and offset
_OFF = {"boundmass": "0", "boundinertia": "0", "balanceinertia": "false"}


@dataclass(frozen=True, eq=False)
class Written:
    """The files to write; paths are relative to the folder of the main file."""

    main: bytes
    # copies of included files, with changes, under names of their own
    parts: dict[Path, bytes] = field(default_factory=dict)
    unchanged: dict[Path, bytes] = field(default_factory=dict)  # the other files it includes
    # the parts as `compile_mjcf` takes them
    unsaved: dict[Path, bytes] = field(default_factory=dict)
    originals: tuple[Path, ...] = ()  # every file that was read beside the main one, where it is
    # whether it names meshes, textures or other files, which stay where they are
    names_files: bool = False


def write_mjcf(
    document: Document,
    links: Mapping[str, np.ndarray],
    joints: Mapping[str, Mapping[str, float]],
    *,
    reach: Mapping[str, float],
    stem: str,
) -> Written:
    """The model with these links' ten numbers (each in its own frame) and these joints' values of
    `ATTRIBUTES`.

    reach: how far each link's numbers were moved between frames [m]. stem: what the names of
        changed parts begin with.
    """
    writer = _Writer(document, links, joints, reach=reach, stem=stem)
    plan, springs, switched_off = set(links), set[str](), False
    for _ in range(PASSES):
        written = writer.write(plan, springs, switched_off)
        try:
            wrong, computed = writer.wrong(written)
        except (
            MalformedInput
            # MuJoCo takes these numbers for impossible; without its repairs they need not pass it
        ) as error:
            if switched_off:
                raise UnphysicalRobot(f"the changed robot cannot be read again: {error}") from None
            switched_off = True
            continue
        if not wrong and computed <= springs:
            return written
        switched_off = switched_off or bool(wrong & plan)
        plan |= wrong
        springs |= computed
    raise UnphysicalRobot(
        f"{label(document.path)}: link {min(wrong)!r} cannot be stated with its new inertia, whose"
        " numbers are too far apart; identify with the consistent method, or use robot.projected()"
    )


class _Writer:
    """The nominal model, what its links are to become, and the files it is made of."""

    def __init__(
        self,
        document: Document,
        links: Mapping[str, np.ndarray],
        joints: Mapping[str, Mapping[str, float]],
        *,
        reach: Mapping[str, float],
        stem: str,
    ) -> None:
        self.document, self.joints, self.reach, self.stem = document, joints, reach, stem
        self.nominal = compile_mjcf(document)
        self.folder = self.nominal.source.folder
        theta, self.scale = body_parameters(self.nominal.model, self.nominal.source)
        self.index = {name: i for i, name in enumerate(self.nominal.names.bodies)}
        # wanted, of every body
        self.theta = {name: np.asarray(links.get(name, theta[i])) for name, i in self.index.items()}
        self.documents = {document.path: document} | {
            path: read_xml(path) for path in self.folder.files.values()
        }
        self.elements: dict[Key, Element] = {
            (path, element.offset): element
            for path, other in self.documents.items()
            for element in other.root.iter()
        }
        self.poses = frame_poses(self.nominal)

    def original(self, element: Element) -> Element:
        """The element as its file has it."""
        return self.elements[element.source, element.offset]

    def wrong(self, written: Written) -> tuple[set[str], set[str]]:
        """The links that come out otherwise than wanted, and the joints whose damping does."""
        again = compile_mjcf(_with_text(self.document, written.main), written.unsaved)
        theta, _ = body_parameters(again.model, again.source)
        joints = set()
        for j, name in enumerate(self.nominal.names.joints):
            dof = self.nominal.model.jnt_dofadr[j]
            wanted = self.joints.get(name, {}).get("damping", self.nominal.model.dof_damping[dof])
            if (
                joint_of(self.nominal.model, self.nominal.source, j) is not None
                and again.model.dof_damping[dof] != wanted
            ):
                joints.add(name)
        return {
            name
            for name, i in self.index.items()
            if not same_parameters(theta[i], self.theta[name])
        }, joints

    def write(self, plan: set[str], springs: set[str], switched_off: bool) -> Written:
        """The files with the planned links and all changed joints written; `springs` are joints to
        be freed of their `springdamper`.
        """
        self.edits = {path: XmlEdit(document) for path, document in self.documents.items()}
        done: dict[Key, tuple[str, np.ndarray]] = {}
        for name in sorted(plan, key=self.index.__getitem__):
            body = body_of(self.nominal.model, self.nominal.source, self.index[name])
            if body is None:
                raise UsageError(
                    f"{label(self.document.path)}: body {name!r} is made by MuJoCo and has no"
                    " element, so it cannot be given other inertia"
                )
            element = self.original(body.element)
            other = done.setdefault((element.source, element.offset), (name, self.theta[name]))
            if other[0] == name:
                self._write_body(name, element, body)
            elif not same_parameters(other[1], self.theta[name]):
                raise UsageError(
                    f"{element.place}: {other[0]!r} and {name!r} are copies of it, so they cannot"
                    " have different inertia; write them out"
                )
        self._write_joints(springs)
        self._write_compilers(plan, switched_off)
        return self._collect()

    # -- bodies ------------------------------------------------------------------------------------

    def _write_body(self, name: str, element: Element, body: BodySource) -> None:
        i = self.index[name]
        inertial = None if body.inertial is None else self.original(body.inertial)
        edit = self.edits[(inertial or element).source]
        turn, shift = self.poses.get(i, (np.eye(3), np.zeros(3)))
        theta = parameters.transform(self.theta[name] / self.scale, turn.T, -turn.T @ shift)
        old = stated_inertial(self.nominal, i, inertial, turn)
        new = restated(theta, old, reach=self.reach.get(name, 0.0), place=element.place)
        if inertial is not None and "fullinertia" in inertial.attrib:
            edit.set_numbers(inertial, "pos", new.com)
            edit.set_numbers(inertial, "mass", [new.mass])
            edit.set_numbers(
                inertial,
                "fullinertia",
                [new.inertia[at] for at in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))],
            )
            return
        diagonal, quaternion = principal(new, theta)
        if inertial is None:
            parts = [attribute("pos", new.com), attribute("mass", [new.mass])]
            if quaternion is not None:
                parts.insert(1, attribute("quat", quaternion))
            parts.append(attribute("diaginertia", diagonal))
            edit.insert(element, [(0, f"<inertial{''.join(parts)}/>")])
            return
        edit.set_numbers(inertial, "pos", new.com)
        edit.set_numbers(inertial, "mass", [new.mass])
        edit.set_numbers(inertial, "diaginertia", diagonal)
        if quaternion is None and body.overridden:
            quaternion = quaternion_of(new.rotation)
        if quaternion is not None:
            self._write_axes(edit, inertial, quaternion)

    def _write_axes(self, edit: XmlEdit, inertial: Element, quaternion: np.ndarray) -> None:
        other = next((key for key in ORIENTATIONS if key in inertial.attrib), None)
        if other:
            edit.replace_attribute(inertial, other, "quat", " ".join(map(digits, quaternion)))
        elif "quat" in inertial.attrib or quaternion[0] != 1.0:
            # q and −q are one rotation
            near = np.dot(vector(inertial, "quat", 4, (1.0, 0.0, 0.0, 0.0)), quaternion) >= 0.0
            edit.set_numbers(inertial, "quat", quaternion if near else -quaternion)

    # -- joints and settings -----------------------------------------------------------------------

    def _write_joints(self, springs: set[str]) -> None:
        model, source = self.nominal.model, self.nominal.source
        done: dict[Key, tuple[str, dict[str, tuple[float, ...]]]] = {}
        for j, name in enumerate(self.nominal.names.joints):
            copy = joint_of(model, source, j)
            if copy is None:
                continue
            values: dict[str, tuple[float, ...]] = {}
            if name in springs:
                values["springdamper"] = (0.0, 0.0)
                values["stiffness"] = (model.jnt_stiffness[j],)
                values["damping"] = (model.dof_damping[model.jnt_dofadr[j]],)
            for key, value in self.joints.get(name, {}).items():
                values[ATTRIBUTES[key]] = (value,)
            element = self.original(copy)
            first, stated = done.setdefault((element.source, element.offset), (name, values))
            if stated != values:
                raise UsageError(
                    f"{element.place}: {first!r} and {name!r} are copies of it, so their drives"
                    " cannot differ; write them out"
                )
            if first == name:
                for key, numbers in values.items():
                    self.edits[element.source].set_numbers(element, key, numbers)

    def _write_compilers(self, plan: set[str], switched_off: bool) -> None:
        """Change the settings that would undo what was written; in each model the last element that
        has a setting decides.
        """
        if not plan:
            return
        settings = {"inertiafromgeom": "auto"} | (_OFF if switched_off else {})
        for model, compilers in enumerate(self.nominal.source.elements.compilers):
            elements = [self.original(compiler) for compiler in compilers]
            for key, value in settings.items():
                for element in [element for element in elements if key in element.attrib][-1:]:
                    if element.attrib[key] == "true" or key.startswith("bound"):
                        self.edits[element.source].set_text(element, key, value)
            if model == 0 and self.nominal.source.total_mass:
                element = [element for element in elements if "settotalmass" in element.attrib][-1]
                old = sum(
                    theta[parameters.M]
                    for theta in body_parameters(self.nominal.model, self.nominal.source)[0]
                )
                total = sum(theta[parameters.M] for theta in self.theta.values())
                if abs(total - old) > 1e-14 * abs(old):
                    self.edits[element.source].set_numbers(
                        element, "settotalmass", [number(element, "settotalmass") * total / old]
                    )

    # -- files -------------------------------------------------------------------------------------

    def _collect(self) -> Written:
        """The files' bytes; who includes a changed file is changed, too, to name its copy."""
        renamed: set[Key] = set()
        while fresh := [
            (source, offset, path)
            for source, offset, path in self.folder.named
            if self.edits[self.folder.files[path]].changed and (source, offset) not in renamed
        ]:
            for source, offset, path in fresh:
                renamed.add((source, offset))
                self._name_copy(self.elements[source, offset], path)
        named = any(
            "file" in element.attrib and element.tag not in ("include", "model")
            for element in self.elements.values()
        )
        originals = (*self.folder.files, *self.folder.meshes)
        written = Written(
            self.edits[self.document.path].result(), originals=originals, names_files=named
        )
        for path, place in self.folder.files.items():
            relative = path.relative_to(self.folder.path)
            if self.edits[place].changed:
                copy = relative.with_name(self._copy_name(path.name))
                written.parts[copy] = written.unsaved[(self.folder.path / copy).resolve()] = (
                    self.edits[place].result()
                )
            else:
                written.unchanged[relative] = self.documents[place].text
        return written

    def _copy_name(self, name: str) -> str:
        return f"{self.stem}_{name}"

    def _name_copy(self, element: Element, path: Path) -> None:
        edit, stated = self.edits[element.source], element.attrib["file"]
        file = stated.strip().replace("\\", "/")
        edit.set_text(
            element,
            "file",
            f"{file[: len(file) - len(PurePosixPath(file).name)]}{self._copy_name(path.name)}",
        )
        # <attach> knows it by its file's name
        if element.tag == "model" and "name" not in element.attrib:
            edit.add_attribute(element, "name", PurePosixPath(file).stem)


def _with_text(document: Document, text: bytes) -> Document:
    return Document(document.path, text, parse(text, document.path))
