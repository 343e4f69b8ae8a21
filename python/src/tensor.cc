#include "python/src/tensor.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device/dlpack_export.h"
#include "python/src/module.h"

namespace nb = nanobind;

namespace feedline::python {
namespace {

std::string lower_case_name(DType dtype) {
  if (dtype == DType::boolean) return "bool";
  std::string text(name(dtype));
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Returns a capsule that holds `managed`. A consumer that takes the struct renames the capsule, and later calls the
/// deleter itself.
template <typename Managed>
nb::capsule capsule(const char* name, Managed* managed) {
  PyObject* object = PyCapsule_New(managed, name, [](PyObject* self) {
    const char* still = PyCapsule_GetName(self);
    if (!still || std::strncmp(still, "used_", 5) == 0) return;
    if (auto* left = static_cast<Managed*>(PyCapsule_GetPointer(self, still))) left->deleter(left);
  });
  if (!object) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal<nb::capsule>(object);
}

[[noreturn]] void refuse(const std::string& why) { throw nb::buffer_error(why.c_str()); }

[[noreturn]] void refuse_argument(const char* name, nb::handle found, const char* wanted) {
  throw nb::type_error((std::string(name) + " is " + nb::repr(found).c_str() + "; it must be " + wanted).c_str());
}

std::string device_text(const Tensor& tensor) { return "cuda:" + std::to_string(tensor.device().ordinal); }

std::string text_of(const Tensor& tensor) {
  return "feedline.Tensor(" + lower_case_name(tensor.dtype()) + " " + to_string(tensor.shape()) +
         (tensor.on_host() ? "" : ", " + device_text(tensor)) + ")";
}

/// Returns the message for a caller that wants the bytes of a tensor on a GPU.
std::string not_on_host(const Tensor& tensor) {
  return "the tensor is on " + device_text(tensor) +
         ", but must be on the host for this call; copy the tensor with your framework, for example with "
         "torch.from_dlpack(tensor).cpu()";
}

/// Returns the value of the argument `copy` of `__dlpack__` and `__array__`; nullopt for None. Raises TypeError for
/// anything but True, False or None.
std::optional<bool> copy_of(nb::handle copy) {
  if (copy.is_none()) return std::nullopt;
  if (!nb::isinstance<nb::bool_>(copy)) refuse_argument("copy", copy, "True, False or None");
  return nb::cast<bool>(copy);
}

/// Returns whether a consumer that passes this argument `max_version` takes versioned capsules.
bool takes_versions(nb::handle max_version) {
  if (max_version.is_none()) return false;
  std::pair<int, int> version;
  if (!nb::try_cast(max_version, version))
    refuse_argument("max_version", max_version, "a tuple of two integers, such as (1, 0), or None");
  return version.first >= 1;
}

nb::object array_of(nb::handle self, nb::handle dtype, nb::handle copy) {
  const Tensor& tensor = nb::cast<const Tensor&>(self);
  if (!tensor.on_host()) throw nb::type_error(not_on_host(tensor).c_str());
  if (tensor.dtype() == DType::bfloat16)
    throw nb::type_error(
        "numpy has no bfloat16; take the tensor with torch.from_dlpack(tensor) or jax.numpy.from_dlpack(tensor), or "
        "copy it with the package ml_dtypes: numpy.frombuffer(bytes(tensor), "
        "ml_dtypes.bfloat16).reshape(tensor.shape)");
  const std::optional<bool> asked = copy_of(copy);
  if (tensor.lent() && asked == false)
    throw nb::value_error("the tensor's memory has other readers, so only a copy can be given; leave out copy=False");
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object array = numpy.attr("from_dlpack")(self);
  if (copy.is_none()) return numpy.attr("asarray")(array, nb::arg("dtype") = dtype);
  return numpy.attr("asarray")(array, nb::arg("dtype") = dtype, nb::arg("copy") = copy);
}

}  // namespace

SharedBatch::~SharedBatch() {
  // A thread that has no Python thread state does not hold the GIL. If a thread has a thread state, the stable ABI
  // cannot tell whether the thread holds the GIL. So such a thread first acquires the GIL, which does nothing if the
  // thread holds it already, and then releases it.
  if (device.kind == DeviceId::Kind::host || !PyGILState_GetThisThreadState()) return;
  nb::gil_scoped_acquire held;
  nb::gil_scoped_release released;
  batch = Batch();
}

Tensor Tensor::copy() const {
  nb::gil_scoped_release released;
  const auto copied = std::make_shared<SharedBatch>(batch_->batch.copy(std::span(tensor_, 1)), device());
  return Tensor(copied, copied->batch.tensors().front());
}

void Tensor::order_after_writing(nb::handle stream) const {
  if (on_host()) return;
  int64_t number = 1;
  if (!stream.is_none() && !nb::try_cast(stream, number))
    refuse_argument("stream", stream, "None, -1, 1, 2, or the handle of a stream");
  if (number == -1) return;
  if (number == 0)
    refuse("stream 0 is ambiguous: pass 1 for CUDA's legacy default stream, or 2 for the per-thread default stream");
  if (number < 0) refuse("stream must be -1, 1, 2, or the handle of a CUDA stream; it is " + std::to_string(number));
  nb::gil_scoped_release released;
  const std::lock_guard lock(batch_->mutex);
  batch_->batch.ready_on(Stream::dlpack(number));
}

nb::typed<nb::tuple, int, int> Tensor::dlpack_device() const {
  return nb::make_tuple(int{on_host() ? kDLCPU : kDLCUDA}, on_host() ? 0 : device().ordinal);
}

nb::capsule Tensor::dlpack(nb::handle stream, nb::handle max_version, nb::handle dl_device, nb::handle copy) const {
  if (!dl_device.is_none() && !dl_device.equal(dlpack_device()))
    refuse(std::string("the tensor is on the device ") + nb::repr(dlpack_device()).c_str() + ", but dl_device is " +
           nb::repr(dl_device).c_str() + "; leave out dl_device, and copy the tensor with your framework");
  const std::optional<bool> asked = copy_of(copy);
  const bool versioned = takes_versions(max_version);
  if (lent() && asked == false)
    refuse("the tensor's memory has other readers, so only a copy can be exported; leave out copy=False");
  const bool fresh = asked == true || lent();
  const Tensor given = fresh ? this->copy() : *this;
  given.order_after_writing(stream);
  const TensorView& view = given.tensor_->tensor;
  if (versioned)
    return capsule("dltensor_versioned", gpu::export_tensor<DLManagedTensorVersioned>(
                                             given.batch_, view, device(), fresh ? DLPACK_FLAG_BITMASK_IS_COPIED : 0));
  return capsule("dltensor", gpu::export_tensor<DLManagedTensor>(given.batch_, view, device(), 0));
}

void add_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor",
                     "A tensor of a batch: row-major, in memory that stays valid as long as this object or anything\n"
                     "made from it lives. numpy, torch, jax, cupy and tensorflow take it by DLPack without a copy:\n"
                     "torch.from_dlpack(tensor), numpy.asarray(tensor).\n"
                     "\n"
                     "On a GPU the memory is used again when the streams that consumers have named have done the\n"
                     "work that they had when all of these objects were freed. torch and cupy name their current\n"
                     "stream. jax and tensorflow do not name the streams that read the tensor: take the loaders of\n"
                     "feedline.jax and feedline.tf, or see __dlpack__().")
      .def("__dlpack__", &Tensor::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
           "Returns a DLPack capsule, as the Python array API standard says. Raises BufferError if the tensor would\n"
           "have to go to another device, or to be copied although copy=False.\n"
           "\n"
           "On a GPU, `stream` waits until the tensor is written. The tensor's memory is used again when `stream` has\n"
           "done the work that it had when the tensor was freed. None or 1 is CUDA's legacy default stream, 2 the\n"
           "per-thread one, and any other number the handle of a stream, which must outlive the batch. -1 names no\n"
           "stream. A stream that is not named is not waited for: make sure that the tensor is written before it is\n"
           "read, and read before it is freed.")
      .def("__dlpack_device__", &Tensor::dlpack_device,
           "Returns DLPack's numbers of the device: (1, 0) is the host, (2, n) is GPU n.")
      .def("__array__", array_of, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
           "Returns a numpy array of the same memory, for numpy.asarray(tensor); a copy if `dtype` or `copy` asks for\n"
           "one. Raises TypeError for bfloat16, which numpy lacks, and for a tensor on a GPU.")
      .def_prop_ro(
          "dtype", [](const Tensor& t) { return lower_case_name(t.dtype()); },
          "The name of the element type, as numpy spells it: 'float32', 'bool', 'bfloat16'.")
      .def_prop_ro(
          "shape",
          [](const Tensor& t) -> nb::typed<nb::tuple, int, nb::ellipsis> {
            nb::list axes;
            for (const int64_t axis : t.shape()) axes.append(axis);
            return nb::tuple(axes);
          },
          "The lengths of the axes. The first axis of a dense tensor has the rows of the batch.")
      .def_prop_ro(
          "ndim", [](const Tensor& t) { return t.shape().rank(); }, "The number of axes.")
      .def_prop_ro(
          "size", [](const Tensor& t) { return t.shape().elements(); }, "The number of elements.")
      .def_prop_ro("nbytes", &Tensor::size_bytes, "The number of bytes of all elements.")
      .def(
          "__len__",
          [](const Tensor& t) {
            if (t.shape().rank() == 0) throw nb::type_error("a scalar has no length");
            return t.shape()[0];
          },
          "Returns the length of the first axis. Raises TypeError for a scalar.")
      .def(
          "__bytes__",
          [](const Tensor& t) {
            if (!t.on_host()) refuse(not_on_host(t));
            return nb::bytes(t.bytes().data(), t.bytes().size());
          },
          "Returns a copy of the elements, row-major and in the machine's byte order. Raises BufferError on a GPU.")
      .def("__repr__", text_of);
}

}  // namespace feedline::python
