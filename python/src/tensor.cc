#include "python/src/tensor.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device/dlpack_export.h"

namespace nb = nanobind;

namespace feedline::python {
namespace {

std::string lower_case_name(DType dtype) {
  if (dtype == DType::boolean) return "bool";
  std::string text(name(dtype));
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Returns a capsule of the struct. A consumer renames the capsule that it takes, and calls the deleter itself.
template <typename Managed>
nb::object capsule(const char* name, Managed* managed) {
  PyObject* object = PyCapsule_New(managed, name, [](PyObject* self) {
    const char* still = PyCapsule_GetName(self);
    if (!still || std::strncmp(still, "used_", 5) == 0) return;
    if (auto* left = static_cast<Managed*>(PyCapsule_GetPointer(self, still))) left->deleter(left);
  });
  if (!object) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(object);
}

[[noreturn]] void refuse(const char* why) { throw nb::buffer_error(why); }

std::string text_of(const Tensor& tensor) {
  const DeviceId device = tensor.device();
  return "feedline.Tensor(" + lower_case_name(tensor.dtype()) + " " + to_string(tensor.shape()) +
         (device.kind == DeviceId::Kind::cuda ? ", cuda:" + std::to_string(device.ordinal) : "") + ")";
}

}  // namespace

SharedBatch::~SharedBatch() {
  // A thread without a state of Python's does not hold the GIL. The stable ABI cannot tell whether another one does. So
  // it takes the GIL, which does nothing if it holds it, and gives it away.
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
  const int64_t number = stream.is_none() ? 1 : nb::cast<int64_t>(stream);
  if (number == -1) return;
  if (number == 0) refuse("stream 0 is ambiguous: pass 1 for CUDA's legacy default stream, 2 for the per-thread one");
  if (number < 0) refuse("a stream is -1, 1, 2, or the handle of a stream");
  nb::gil_scoped_release released;
  const std::lock_guard lock(batch_->mutex);
  batch_->batch.ready_on(Stream::dlpack(number));
}

nb::tuple Tensor::dlpack_device() const {
  return nb::make_tuple(int{on_host() ? kDLCPU : kDLCUDA}, on_host() ? 0 : device().ordinal);
}

nb::object Tensor::dlpack(nb::object stream, nb::object max_version, nb::object dl_device, nb::object copy) const {
  if (!dl_device.is_none() && !dl_device.equal(dlpack_device()))
    refuse("the tensor is on another device than dl_device; take it where it is, and copy it with your framework");
  const bool must_copy = !copy.is_none() && nb::cast<bool>(copy);
  const bool may_copy = copy.is_none() || must_copy;
  if (lent() && !may_copy)
    refuse("others read this memory, too, so it is only exported as a copy; leave out copy=False");
  const bool fresh = must_copy || lent();
  const Tensor given = fresh ? this->copy() : *this;
  given.order_after_writing(stream);
  const TensorView& view = given.tensor_->tensor;
  if (!max_version.is_none() && nb::cast<int>(max_version[0]) >= 1)
    return capsule("dltensor_versioned", gpu::export_tensor<DLManagedTensorVersioned>(
                                             given.batch_, view, device(), fresh ? DLPACK_FLAG_BITMASK_IS_COPIED : 0));
  return capsule("dltensor", gpu::export_tensor<DLManagedTensor>(given.batch_, view, device(), 0));
}

void add_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor",
                     "A tensor of a batch: row-major, in memory that stays valid as long as this object or anything\n"
                     "made from it lives. numpy, torch, jax, cupy and tensorflow take it by DLPack without a copy:\n"
                     "torch.from_dlpack(tensor), numpy.asarray(tensor).")
      .def("__dlpack__", &Tensor::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
           "Returns a DLPack capsule, as the Python array API standard says. Raises BufferError if the tensor would\n"
           "have to go to another device, or to be copied although copy=False.")
      .def("__dlpack_device__", &Tensor::dlpack_device)
      .def(
          "__array__",
          [](nb::object self, nb::object dtype, nb::object copy) {
            const Tensor& tensor = nb::cast<const Tensor&>(self);
            const nb::module_ numpy = nb::module_::import_("numpy");
            const bool may_not_copy = !copy.is_none() && !nb::cast<bool>(copy);
            if (may_not_copy && tensor.lent())
              throw nb::value_error(
                  "others read this memory, too, so it is only given as a copy; leave out copy=False");
            const nb::object array = numpy.attr("from_dlpack")(self);
            if (copy.is_none()) return numpy.attr("asarray")(array, nb::arg("dtype") = dtype);
            return numpy.attr("asarray")(array, nb::arg("dtype") = dtype, nb::arg("copy") = copy);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def_prop_ro(
          "dtype", [](const Tensor& t) { return lower_case_name(t.dtype()); },
          "The name of the element type, as numpy spells it: 'float32', 'bool', 'bfloat16'.")
      .def_prop_ro("shape",
                   [](const Tensor& t) {
                     nb::list axes;
                     for (const int64_t axis : t.shape()) axes.append(axis);
                     return nb::tuple(axes);
                   })
      .def_prop_ro("ndim", [](const Tensor& t) { return t.shape().rank(); })
      .def_prop_ro(
          "size", [](const Tensor& t) { return t.shape().elements(); }, "The number of elements.")
      .def_prop_ro("nbytes", &Tensor::size_bytes)
      .def("__len__",
           [](const Tensor& t) {
             if (t.shape().rank() == 0) throw nb::type_error("a scalar has no length");
             return t.shape()[0];
           })
      .def("__bytes__",
           [](const Tensor& t) {
             if (t.device().kind != DeviceId::Kind::host) refuse("the tensor is on a GPU");
             return nb::bytes(t.bytes().data(), t.bytes().size());
           })
      .def("__repr__", text_of);
}

}  // namespace feedline::python
