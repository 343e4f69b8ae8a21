// The functions of the fmt library. Its headers alone are used, and its code is compiled here, so that it is hidden in
// the library like our own: another copy in the process, of another version, is never called.
//
// fmt documents two ways to be used, this one (its src/format.cc) and FMT_HEADER_ONLY, which compiles the functions in
// every file that formats: 3 s of CPU each.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template locale_ref::locale_ref(const std::locale&);
template auto locale_ref::get<std::locale>() const -> std::locale;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);

}  // namespace detail
FMT_END_NAMESPACE
