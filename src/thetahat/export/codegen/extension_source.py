"""CPython extension around a robot's C code: arrays in, arrays out, None where it is not for C."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thetahat.export.codegen.c_functions import Function
    from thetahat.export.codegen.c_sources import RobotCode

SIZES = {"p": "PARAMETERS", "q": "NQ"}  # of the arguments; the others have NV numbers
MATRICES = {"mass_matrix": "NV", "regressor": "COLUMNS"}
WRAPPED = ("inverse_dynamics", "gravity", "mass_matrix", "regressor", "forward_dynamics")


def extension_source(module: str, code: RobotCode) -> str:
    """Return extension.c, whose functions take the arrays of the C functions and `out` or None."""
    functions = [f for f in code.functions if f.name in WRAPPED]
    table = "".join(
        f'    {{"{f.name}", (PyCFunction)(void (*)(void))call_{f.name}, METH_FASTCALL, NULL}},\n'
        for f in functions
    )
    text = _FILE.replace("@calls@", "\n".join(_call(f) for f in functions))
    text = text.replace("@table@", table).replace("@module@", module)
    return text.replace("@name@", code.prefix).replace("@NAME@", code.prefix.upper())


def _call(function: Function) -> str:
    count = len(function.inputs)
    takes = "".join(
        f"    const double *{name} = numbers(given[{k}], @NAME@_{SIZES.get(name, 'NV')});\n"
        for k, name in enumerate(function.inputs)
    )
    missing = " || ".join(f"!{name}" for name in function.inputs)
    width = MATRICES.get(function.name)
    columns = f"@NAME@_{width}" if width else "0"
    zeros = f"    @name@_{function.name}_init(data);\n" if width else ""
    arguments = ", ".join((*function.inputs, "data"))
    run = f"@name@_{function.name}({arguments})"
    if function.returns == "int":
        run = f"if ({run} != 0) {{\n        Py_DECREF(out);\n        Py_RETURN_NONE;\n    }}"
    else:
        run += ";"
    return f"""\
static PyObject *call_{function.name}(PyObject *self, PyObject *const *given, Py_ssize_t count)
{{
    PyObject *out;
    double *data;
    (void)self;
    if (count != {count + 1}) Py_RETURN_NONE;
{takes}    if ({missing}) Py_RETURN_NONE;
    out = room(given[{count}], {columns}, given, {count});
    if (!out) return NULL;
    if (out == Py_None) return out;
    data = (double *)PyArray_DATA((PyArrayObject *)out);
{zeros}    {run}
    return out;
}}
"""


_FILE = """\
#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>

#include "@name@.c"

/* the numbers of a contiguous array of doubles of one axis, all finite; else NULL */
static const double *numbers(PyObject *given, npy_intp count)
{
    PyArrayObject *array = (PyArrayObject *)given;
    const double *data;
    double sum = 0;
    npy_intp k;
    if (!PyArray_CheckExact(given) || PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != count ||
        PyArray_TYPE(array) != NPY_DOUBLE || !PyArray_ISCARRAY_RO(array))
        return NULL;
    data = (const double *)PyArray_DATA(array);
    for (k = 0; k < count; k++) sum += data[k] * 0.0; /* NaN where one is not finite */
    return sum == 0 ? data : NULL;
}

/* a new array, or the one handed in, which must have the shape and overlap no input; else None */
static PyObject *room(PyObject *given, npy_intp columns, PyObject *const *inputs, int count)
{
    npy_intp shape[2] = {@NAME@_NV, columns};
    const int axes = columns ? 2 : 1;
    PyArrayObject *array = (PyArrayObject *)given;
    const char *data, *end;
    int k;
    if (given == Py_None) return PyArray_SimpleNew(axes, shape, NPY_DOUBLE);
    if (!PyArray_CheckExact(given) || PyArray_NDIM(array) != axes ||
        PyArray_DIM(array, 0) != shape[0] || (columns && PyArray_DIM(array, 1) != columns) ||
        PyArray_TYPE(array) != NPY_DOUBLE || !PyArray_ISCARRAY(array))
        Py_RETURN_NONE;
    data = PyArray_BYTES(array);
    end = data + PyArray_NBYTES(array);
    for (k = 0; k < count; k++) {
        const char *input = PyArray_BYTES((PyArrayObject *)inputs[k]);
        const npy_intp bytes = PyArray_NBYTES((PyArrayObject *)inputs[k]);
        if (input < end && data < input + bytes) Py_RETURN_NONE;
    }
    Py_INCREF(given);
    return given;
}

@calls@
static PyMethodDef methods[] = {
@table@    {NULL, NULL, 0, NULL}
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "@module@", NULL, -1, methods, NULL, NULL, NULL, NULL
};

PyMODINIT_FUNC PyInit_@module@(void)
{
    import_array();
    return PyModule_Create(&definition);
}
"""
