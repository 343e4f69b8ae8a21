// The only file that knows which version of Catch2 is used: 2.13, the version in Debian 12.
#pragma once

#include <catch2/catch.hpp>
