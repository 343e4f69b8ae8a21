// The functions of the fmt library. feedline uses only fmt's headers and compiles fmt's code here, so that it is hidden
// in the library like our own. So feedline never calls another copy of fmt in the process, whose version may differ.
//
// fmt documents two ways to use it. One is this file, which does what fmt's src/format.cc does. The other is
// FMT_HEADER_ONLY, which compiles the functions in every file that formats, and takes 3 s of CPU for each. fmt's
// versions 9 to 12 differ in what must be instantiated here.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
#if FMT_VERSION >= 120000
template locale_ref::locale_ref(const std::locale&);
#endif
namespace detail {

template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
#if FMT_VERSION < 120000
template locale_ref::locale_ref(const std::locale&);
template auto locale_ref::get<std::locale>() const -> std::locale;
#endif
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
#if FMT_VERSION >= 100000 && FMT_VERSION < 110200
template void vformat_to(buffer<char>&, string_view, typename vformat_args<>::type, locale_ref);
#endif

}  // namespace detail
FMT_END_NAMESPACE
