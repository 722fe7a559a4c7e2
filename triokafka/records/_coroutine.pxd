# The C API for an own coroutine type, which Cython does not declare.
from cpython.object cimport PyObject

cdef extern from *:
    """
    typedef int (*triokafka_resume)(PyObject*, PyObject*, PyObject**);

    static PyObject* triokafka_next(PyObject* self) {
        PyObject* result = NULL;
        if (Py_TYPE(self)->tp_as_async->am_send(self, Py_None, &result) == PYGEN_RETURN) {
            PyObject* stop = PyObject_CallOneArg(PyExc_StopIteration, result);
            Py_DECREF(result);
            result = NULL;
            if (stop != NULL) {
    #if PY_VERSION_HEX >= 0x030C0000
                PyErr_SetRaisedException(stop);
    #else
                PyErr_SetObject(PyExc_StopIteration, stop);
                Py_DECREF(stop);
    #endif
            }
        }
        return result;
    }

    /* CPython 3.11 gets the result of an awaited object by am_send without an exception. Later versions resume it by
       tp_iternext, and get a StopIteration with the result. */
    static void triokafka_set_resume(PyObject* type, triokafka_resume resume) {
        ((PyTypeObject*)type)->tp_as_async->am_send = (sendfunc)resume;
        ((PyTypeObject*)type)->tp_iternext = triokafka_next;
    }

    /* Give a compiled function the code object of another one, which tells `inspect` that it returns a coroutine. */
    #define triokafka_take_code(function, other) \
        Py_XSETREF( \
            ((__pyx_CyFunctionObject*)(function))->func_code, \
            Py_XNewRef(((__pyx_CyFunctionObject*)(other))->func_code))

    #define triokafka_new_tuple(type, size) ((PyTypeObject*)(type))->tp_alloc((PyTypeObject*)(type), size)
    """
    void take_code "triokafka_take_code" (object function, object other)
    object new_tuple "triokafka_new_tuple" (object type, Py_ssize_t size)
    void set_resume "triokafka_set_resume" (object type, int (*resume)(PyObject*, PyObject*, PyObject**) except? -1)

cdef extern from "Python.h":
    int PyIter_Send(PyObject* coroutine, PyObject* value, PyObject** result) noexcept
    int PYGEN_NEXT
    int PYGEN_RETURN
