#include "tool/convert/cifar10.h"

#include <fmt/format.h>

#include <stdexcept>

#include "tool/convert/pickle.h"

namespace feedline::cli {
namespace {

uint8_t checked_label(int64_t label, size_t picture) {
  if (label >= 0 && label <= 9) return static_cast<uint8_t>(label);
  throw std::runtime_error(fmt::format("picture {} has label {}, but labels of CIFAR-10 are 0 to 9", picture, label));
}

void demand(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(fmt::format("the pickle does not hold CIFAR-10: {}", what));
}

bool is_numpy(const Pickle& pickle, const Pickle::Value& called, const std::string& module, std::string_view name) {
  return pickle.is_global(called, "numpy.core." + module, name) ||
         pickle.is_global(called, "numpy._core." + module, name);  // NumPy 2 and later
}

struct Array {
  const Pickle::Value &shape, &dtype, &bytes;
  bool in_fortran_order;  // column by column
};

/// Returns the parts of a pickled array. ndarray.__reduce__ gives (_reconstruct, (ndarray, (0,), b'b'), state), where
/// the state is (version, shape, dtype, whether in Fortran order, bytes). With protocol 5 it gives (_frombuffer,
/// (bytes, dtype, shape, order)). Throws std::runtime_error if `data` is neither.
Array array_of(const Pickle& pickle, const Pickle::Value& data) {
  using Type = Pickle::Type;
  demand(data.type == Type::object && data.items.size() >= 2, "no array 'data'");
  const Pickle::Value& called = pickle[data.items[0]];
  if (is_numpy(pickle, called, "numeric", "_frombuffer")) {
    const Pickle::Value& arguments = pickle[data.items[1]];
    demand(arguments.type == Type::tuple && arguments.items.size() == 4,
           "'data' is not made from bytes, dtype, shape and order");
    const std::vector<Pickle::Ref>& items = arguments.items;
    return {pickle[items[2]], pickle[items[1]], pickle[items[0]], pickle[items[3]].bytes != "C"};
  }
  demand(is_numpy(pickle, called, "multiarray", "_reconstruct"), "'data' is no NumPy array");
  demand(data.items.size() == 3, "the array 'data' has no state");
  const Pickle::Value& state = pickle[data.items[2]];
  demand(state.type == Type::tuple && state.items.size() == 5,
         "the state of 'data' is not version, shape, dtype, order and bytes");
  const Pickle::Value& fortran = pickle[state.items[3]];
  return {pickle[state.items[1]], pickle[state.items[2]], pickle[state.items[4]],
          fortran.type != Type::boolean || fortran.integer != 0};
}

}  // namespace

Cifar10Batch read_binary_batch(std::string_view content) {
  constexpr size_t picture_bytes = 1 + cifar10_image_bytes;
  if (content.empty() || content.size() % picture_bytes != 0)
    throw std::runtime_error(fmt::format("it has {} bytes, which is no multiple of the {} bytes of a picture",
                                         content.size(), picture_bytes));
  Cifar10Batch batch;
  batch.images.reserve(content.size());
  for (size_t i = 0; i < content.size() / picture_bytes; i++) {
    const std::string_view picture = content.substr(i * picture_bytes, picture_bytes);
    batch.labels.push_back(checked_label(static_cast<uint8_t>(picture[0]), i));
    batch.images += picture.substr(1);
  }
  return batch;
}

Cifar10Batch read_python_batch(std::string_view content) {
  const Pickle pickle(content);
  using Type = Pickle::Type;
  const Pickle::Value* labels = pickle.find(pickle.root(), "labels");
  const Pickle::Value* data = pickle.find(pickle.root(), "data");
  demand(labels && labels->type == Type::list, "no list 'labels'");
  demand(data, "no array 'data'");
  const auto [shape, dtype, bytes, in_fortran_order] = array_of(pickle, *data);
  // dtype.__reduce__ gives (numpy.dtype, ('u1', align, copy), state).
  demand(dtype.type == Type::object && dtype.items.size() >= 2 &&
             pickle.is_global(pickle[dtype.items[0]], "numpy", "dtype"),
         "'data' has no dtype");
  const Pickle::Value& dtype_arguments = pickle[dtype.items[1]];
  demand(dtype_arguments.type == Type::tuple && !dtype_arguments.items.empty() &&
             pickle[dtype_arguments.items[0]].bytes == "u1",
         "'data' is not of uint8");
  demand(shape.type == Type::tuple && shape.items.size() == 2 && pickle[shape.items[0]].type == Type::integer &&
             pickle[shape.items[1]].type == Type::integer,
         "'data' has no shape of two axes");
  const size_t pictures = labels->items.size();
  demand(pictures > 0 && pickle[shape.items[0]].integer == static_cast<int64_t>(pictures) &&
             pickle[shape.items[1]].integer == cifar10_image_bytes,
         "the shape of 'data' is not [the number of labels, 3072]");
  demand(!in_fortran_order, "'data' is in Fortran order, column by column");
  demand(bytes.type == Type::bytes && bytes.bytes.size() == pictures * cifar10_image_bytes,
         "'data' has another number of bytes than its shape says");

  Cifar10Batch batch;
  for (size_t i = 0; i < pictures; i++) {
    const Pickle::Value& label = pickle[labels->items[i]];
    demand(label.type == Type::integer, "a label is not a whole number");
    batch.labels.push_back(checked_label(label.integer, i));
  }
  batch.images = bytes.bytes;
  return batch;
}

}  // namespace feedline::cli
