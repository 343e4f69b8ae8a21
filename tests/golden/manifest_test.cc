#include "manifest.h"

#include "support/catch.h"

using namespace feedline::test;

TEST_CASE("the manifest has every case") {
  CHECK(golden_cases().size() == 438);
  const GoldenCase& c = golden_case("chess/main");
  CHECK(c.group == "chess");
  CHECK(c.files.size() == 3);
  CHECK(c.records == 3000);
  CHECK(c.record_lengths.size() == 3000);
  CHECK(c.record_crc32c.size() == 3000);
  CHECK(c.features.at(0).name == "d");
  CHECK(c.features.at(0).default_value.is_null());
  CHECK(c.post.at("op") == "chess");
  CHECK(c.oddity.is_null());
  CHECK_THROWS_AS(golden_case("chess/none"), std::runtime_error);
}

TEST_CASE("every stored array has the bytes that its checksums say") {
  size_t arrays = 0;
  for (const GoldenCase& c : golden_cases()) {
    if (c.npz.empty()) continue;
    const auto stored = load_npz(c.npz);
    for (const auto& [name, array] : c.arrays) {
      if (!array.stored) continue;
      INFO(c.name << " " << name);
      const NpyArray& found = stored.at(name);
      CHECK(found.dtype == array.dtype);
      CHECK(found.shape == array.shape);
      Sha256 sha;
      sha.update(found.bytes);
      CHECK(sha.hex() == array.sha256);
      arrays++;
    }
  }
  CHECK(arrays == 480);
}

TEST_CASE("errors and oddities are read") {
  const GoldenCase& huge = golden_case("framing/huge_2_pow_63");
  CHECK(huge.error.category == "record_too_large");
  CHECK(huge.error.stage == "read");
  CHECK(huge.error.also_acceptable == std::vector<std::string>{"truncated_data"});
  CHECK(golden_case("framing/trailing_1").oddity.at("accepts_damage") == "truncated_length");
  CHECK_FALSE(golden_case("compression/gzip_cut_half").error.records_exact);
}
