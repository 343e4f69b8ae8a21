// The one place that knows which Catch2 this is: 2.13 as Debian 12 has it.
#pragma once

#include <catch2/catch.hpp>
