//===- Memory.cpp - memory regions with bounds ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Memory.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

using namespace moec::ptx;

void Region::forget() {
  if (size == 0)
    return;
  // The fill is a NaN in every float type, and a wild index.
  std::memset(data.get(), 0xFF, size);
  initialized.assign(size, 0);
  firstMarked = size;
  endMarked = 0;
}

void Region::renew() {
  shadow = Shadow(size, shadow.isOfCta());
  if (initialized.empty())
    return forget();
  if (firstMarked >= endMarked)
    return;
  std::memset(data.get() + firstMarked, 0xFF, endMarked - firstMarked);
  std::memset(initialized.data() + firstMarked, 0, endMarked - firstMarked);
  firstMarked = size;
  endMarked = 0;
}

bool Region::isInitialized(uint64_t at, uint64_t bytes) const {
  if (initialized.empty())
    return true;
  const uint8_t *flags = initialized.data() + (at - address);
  uint8_t all = 1;
  for (uint64_t i = 0; i < bytes; ++i)
    all &= flags[i];
  return all;
}

void Region::copyInitialized(uint8_t *flags, uint64_t at,
                             uint64_t bytes) const {
  if (initialized.empty())
    std::memset(flags, 1, bytes);
  else
    std::memcpy(flags, initialized.data() + (at - address), bytes);
}

void Region::markInitialized(uint64_t at, uint64_t bytes) {
  if (initialized.empty() || bytes == 0)
    return;
  if (bytes == size) {
    initialized.clear();
    return;
  }
  firstMarked = std::min(firstMarked, at - address);
  endMarked = std::max(endMarked, at - address + bytes);
  std::memset(initialized.data() + (at - address), 1, bytes);
}

void Region::markUninitialized(uint64_t at, uint64_t bytes) {
  if (initialized.empty())
    initialized.assign(size, 1);
  std::memset(initialized.data() + (at - address), 0, bytes);
}

Region *GlobalMemory::allocate(const std::string &name, uint64_t bytes,
                               uint64_t alignment) {
  uint64_t physical =
      uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  if (bytes > physical || alignment > (uint64_t(1) << 40))
    return nullptr;
  uint64_t address = (top + alignment - 1) & ~(alignment - 1);
  // Alignment is exactly what was asked for, so that kernels cannot rely on
  // more.
  if ((address & alignment) == 0)
    address += alignment;
  regions.push_back(
      std::make_unique<Region>(name, address, bytes, /*isShared=*/false));
  top = address + bytes + kGap;
  return regions.back().get();
}

bool GlobalMemory::release(uint64_t address) {
  auto found =
      std::find_if(regions.begin(), regions.end(), [&](const auto &region) {
        return region->address == address;
      });
  if (found == regions.end())
    return false;
  regions.erase(found);
  return true;
}

Region *GlobalMemory::find(uint64_t address, uint32_t &hint) const {
  auto isNear = [&](size_t index) {
    return index < regions.size() &&
           address - regions[index]->address < regions[index]->size + kGap;
  };
  if (isNear(hint))
    return regions[hint].get();
  auto after = std::upper_bound(
      regions.begin(), regions.end(), address,
      [](uint64_t key, const auto &region) { return key < region->address; });
  if (after == regions.begin())
    return nullptr;
  size_t index = size_t(after - regions.begin()) - 1;
  if (!isNear(index))
    return nullptr;
  hint = uint32_t(index);
  return regions[index].get();
}
