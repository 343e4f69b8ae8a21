// Converts any exception to an Error, which can be sent to other threads and ranks.
#pragma once

#include <exception>
#include <new>

#include "feedline/error.h"

namespace feedline {

/// Returns the exception that is being handled: itself if it is an Error, otherwise an Error io_error with its text.
/// Call it inside a catch block.
inline Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(Category::io_error, "out of memory");
  } catch (const std::exception& error) {
    return Error(Category::io_error, error.what());
  } catch (...) {
    return Error(Category::io_error, "an exception that is not a std::exception");
  }
}

}  // namespace feedline
