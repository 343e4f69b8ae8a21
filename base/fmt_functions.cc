// Compiles the functions of the fmt library into feedline. Their symbols are hidden like feedline's own. So feedline
// never calls a different copy of fmt in the same process, which may have a different version.
//
// fmt documents two ways to use only its headers. One is this file, which does what fmt's src/format.cc does. The other
// is FMT_HEADER_ONLY, which compiles the functions again in every file that formats. That takes 3 s of CPU for each
// file. fmt's versions 9 to 12 differ in what must be instantiated here.
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
