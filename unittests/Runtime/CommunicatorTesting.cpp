//===- CommunicatorTesting.cpp - collectives for tests --------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CommunicatorTesting.h"

#include <algorithm>
#include <cstring>
#include <random>

using namespace moert;
using namespace moert::test;

Status RankOfTest::run(CollectiveKind kind, MeshAxis axis,
                       const std::vector<CollectivePart> &parts,
                       const std::string &where) const {
  Collective collective;
  collective.kind = kind;
  collective.axis = axis;
  collective.parts = parts.data();
  collective.numParts = parts.size();
  collective.where = where;
  return communicator.run(stream, collective);
}

Status RankOfTest::step(const std::string &where) const {
  float value = 1, sum = 0;
  return run(CollectiveKind::AllReduce, MeshAxis::Data,
             {{&value, &sum, DType::F32, 1}}, where);
}

void moert::test::expectAllSay(const std::vector<Status> &statuses,
                               StatusCode code,
                               const std::vector<std::string> &texts) {
  for (const Status &status : statuses) {
    EXPECT_EQ(status.code(), code) << status.toString();
    for (const std::string &text : texts)
      EXPECT_NE(status.message().find(text), std::string::npos)
          << "'" << text << "' in: " << status.message();
  }
}

std::vector<Mesh> moert::test::allMeshes(int64_t most) {
  std::vector<Mesh> meshes;
  for (int64_t ranks = 2; ranks <= most; ++ranks)
    for (int64_t tp = 1; tp <= ranks; ++tp)
      if (ranks % tp == 0)
        meshes.push_back({ranks / tp, tp});
  return meshes;
}

namespace {

/// Small integers, whose sums are exact in any type.
float valueAt(int64_t rank, size_t part, int64_t i) {
  return static_cast<float>((rank * 7 + static_cast<int64_t>(part) * 3 + i) %
                            8);
}

void storeAs(DType dtype, std::vector<char> &bytes, int64_t i, float value) {
  if (dtype == DType::F32)
    memcpy(&bytes[static_cast<size_t>(i) * 4], &value, 4);
  else if (dtype == DType::F16) {
    auto half = static_cast<_Float16>(value);
    memcpy(&bytes[static_cast<size_t>(i) * 2], &half, 2);
  } else
    // The upper half suffices for such small integers.
    memcpy(&bytes[static_cast<size_t>(i) * 2],
           reinterpret_cast<const char *>(&value) + 2, 2);
}

/// One rank's part, with the expected output.
struct PartData {
  DType dtype;
  int64_t count;
  std::vector<char> send, receive, expected;
};

PartData makePart(const Mesh &mesh, int64_t rank, CollectiveKind kind,
                  MeshAxis axis, size_t part, DType dtype, int64_t count) {
  int64_t size = mesh.size(axis), bytes = dtypeBits(dtype) / 8;
  bool gathers = kind == CollectiveKind::AllGather;
  bool scatters = kind == CollectiveKind::ReduceScatter;
  int64_t sent = scatters ? count * size : count;
  int64_t received = gathers ? count * size : count;
  PartData data{dtype, count, {}, {}, {}};
  data.send.resize(static_cast<size_t>(sent * bytes));
  data.receive.assign(static_cast<size_t>(received * bytes), '\x55');
  data.expected = data.receive;
  for (int64_t i = 0; i < sent; ++i)
    storeAs(dtype, data.send, i, valueAt(rank, part, i));
  for (int64_t i = 0; i < received; ++i) {
    float value = 0;
    if (gathers)
      value = valueAt(mesh.peer(axis, rank, i / count), part, i % count);
    else
      for (int64_t peer = 0; peer < size; ++peer)
        value += valueAt(mesh.peer(axis, rank, peer), part,
                         scatters ? mesh.index(axis, rank) * count + i : i);
    storeAs(dtype, data.expected, i, value);
  }
  return data;
}

} // namespace

Status moert::test::runRandomly(const RankOfTest &rank, uint32_t seed) {
  const Mesh &mesh = rank.communicator.mesh();
  // Equal on all ranks.
  std::mt19937 random(seed);
  for (int call = 0; call < 12; ++call) {
    auto kind = static_cast<CollectiveKind>(random() % 3);
    auto axis = static_cast<MeshAxis>(random() % 2);
    std::vector<PartData> data;
    size_t numParts = random() % 4;
    for (size_t p = 0; p < numParts; ++p) {
      DType dtype =
          std::vector{DType::F32, DType::BF16, DType::F16}[random() % 3];
      int64_t count = random() % 3 == 0 ? 0 : int64_t(random() % 700);
      data.push_back(makePart(mesh, rank.index, kind, axis, p, dtype, count));
    }
    std::vector<CollectivePart> parts;
    for (PartData &part : data)
      parts.push_back(
          {part.send.data(), part.receive.data(), part.dtype, part.count});
    std::string where = "steps[" + std::to_string(call) + "]";
    if (Status status = rank.run(kind, axis, parts, where); !status)
      return status;
    for (PartData &part : data) {
      EXPECT_EQ(part.receive, part.expected)
          << mesh.str() << " " << collectiveKindName(kind);
      // A rank may overwrite its input as soon as its call returns.
      std::fill(part.send.begin(), part.send.end(), '\x7f');
    }
  }
  return rank.communicator.check();
}

Status moert::test::sendToEach(const RankOfTest &rank, int64_t scale) {
  int64_t last = rank.communicator.mesh().numRanks() - 1;
  auto goes = [&](int64_t from, int64_t to) {
    return to != last || from == last;
  };
  auto sizeOf = [&](int64_t from, int64_t to, int64_t number) {
    return static_cast<size_t>(scale * (10 * from + 3 * to + number));
  };
  auto fillOf = [&](size_t size) {
    return static_cast<char>(size / static_cast<size_t>(scale));
  };
  Transfer transfer;
  transfer.where = "moved";
  std::vector<std::vector<char>> sent, received;
  for (int64_t other = 0; other <= last; ++other)
    for (int64_t number : {0, 1}) {
      size_t out = sizeOf(rank.index, other, number);
      size_t in = sizeOf(other, rank.index, number);
      sent.emplace_back(out, fillOf(out));
      received.emplace_back(in, -1);
      if (goes(rank.index, other))
        transfer.sends.push_back(
            {other, sent.back().data(), static_cast<int64_t>(out)});
      if (goes(other, rank.index))
        transfer.receives.push_back(
            {other, received.back().data(), static_cast<int64_t>(in)});
    }
  Status status = rank.communicator.transfer(rank.stream, transfer);
  for (size_t i = 0; i < received.size(); ++i) {
    auto other = static_cast<int64_t>(i / 2);
    size_t size = received[i].size();
    char expected = goes(other, rank.index) ? fillOf(size) : char(-1);
    EXPECT_EQ(received[i], std::vector<char>(size, expected));
  }
  return status;
}

std::vector<WrongRing> moert::test::wrongRings() {
  return {
      {[](int64_t rank, Transfer &made) {
         if (rank == 1)
           made.sends[0].bytes = 2;
       },
       StatusCode::InvalidArgument,
       {"moved: rank 1 sends rank 2 2 bytes in message 0, and 4 are expected "
        "there"}},
      {[](int64_t rank, Transfer &made) {
         if (rank == 0)
           made.receives.clear();
       },
       StatusCode::InvalidArgument,
       {"moved: rank 2 sends rank 0 1 messages, and 0 are expected there"}},
      {[](int64_t rank, Transfer &made) {
         if (rank == 2)
           made.where = "elsewhere";
       },
       StatusCode::InvalidArgument,
       {"moved", "elsewhere"}},
      {[](int64_t rank, Transfer &made) {
         if (rank == 2)
           made.sends[0].rank = 3;
       },
       StatusCode::OutOfRange,
       {"rank 2: moved: message 0 to rank 3: the ranks are 0 to 2"}},
      {[](int64_t rank, Transfer &made) {
         if (rank == 2)
           made.receives[0].data = nullptr;
       },
       StatusCode::InvalidArgument,
       {"rank 2: moved: message 0 from rank 1: 4 bytes, at an address that is "
        "null"}},
  };
}

Status moert::test::sendAround(const RankOfTest &rank, const WrongRing &ring) {
  char memory[16] = {};
  Transfer made;
  made.where = "moved";
  made.sends = {{(rank.index + 1) % 3, memory, 4}};
  made.receives = {{(rank.index + 2) % 3, memory + 8, 4}};
  ring.change(rank.index, made);
  return rank.communicator.transfer(rank.stream, made);
}
