// The limits of a container, from files like the kernel's.
#include "support/container_limits.h"

#include <gtest/gtest.h>

#include <limits>

#include "temporary_folder.h"

namespace hinge::support {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr int64_t kNoBytes = std::numeric_limits<int64_t>::max();

class ContainerLimitsTest : public TemporaryFolderTest {
 protected:
  ContainerLimits limits_in(const std::string& groups) const {
    put("cgroup", groups);
    return container_limits(path("cgroup"), folder_.string());
  }
};

TEST_F(ContainerLimitsTest, AreThoseOfTheRootInAContainer) {
  put("cpu.max", "150000 100000\n");
  put("memory.max", "4294967296\n");
  const ContainerLimits limits = limits_in("0::/\n");
  EXPECT_DOUBLE_EQ(limits.cores, 1.5);
  EXPECT_EQ(limits.memory_bytes, int64_t{4} << 30);
}

TEST_F(ContainerLimitsTest, AreTheLowestOfTheGroupAndThoseAroundIt) {
  put("slice/cpu.max", "400000 100000\n");
  put("slice/memory.max", "1000\n");
  put("slice/unit/cpu.max", "max 100000\n");
  put("slice/unit/memory.max", "2000\n");
  put("slice/other/memory.max", "10\n");
  const ContainerLimits limits = limits_in("4:memory:/old\n0::/slice/unit\n");
  EXPECT_DOUBLE_EQ(limits.cores, 4);
  EXPECT_EQ(limits.memory_bytes, 1000);
}

TEST_F(ContainerLimitsTest, AreNoneWhereNothingIsSaid) {
  for (const char* groups : {"", "0::/\n", "0::/a/b\n", "0::/../outside\n", "1:cpu:/a\n"}) {
    const ContainerLimits limits = limits_in(groups);
    EXPECT_EQ(limits.cores, kNoLimit) << groups;
    EXPECT_EQ(limits.memory_bytes, kNoBytes) << groups;
  }
  put("cpu.max", "max 100000\n");
  put("memory.max", "max\n");
  EXPECT_EQ(limits_in("0::/\n").cores, kNoLimit);
  EXPECT_EQ(limits_in("0::/\n").memory_bytes, kNoBytes);
  put("cpu.max", "nonsense");
  EXPECT_EQ(limits_in("0::/\n").cores, kNoLimit);
  EXPECT_EQ(container_limits(path("none"), path("none")).cores, kNoLimit);
}

}  // namespace
}  // namespace hinge::support
