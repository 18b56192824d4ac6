//===- CApiRanks.cpp - several ranks in the C API ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CApi.h"

#include "moert/LocalGroup.h"
#include "moert/PeerCommunicator.h"

#include <vector>

using namespace moert;
using namespace moert::answers;

/// Converts the options, or returns an error.
static Result<NcclOptions>
readOptions(const moert_communicator_options *options) {
  if (options->size < sizeof(moert_communicator_options))
    return invalidArgument("moert_communicator_options.size is " +
                           std::to_string(options->size) +
                           "; set it to sizeof(moert_communicator_options), " +
                           std::to_string(sizeof(moert_communicator_options)));
  if (options->dp < 1 || options->tp < 1)
    return invalidArgument("a mesh of dp " + std::to_string(options->dp) +
                           " x tp " + std::to_string(options->tp) +
                           "; give at least 1 of each");
  if (options->dp > MOERT_MOST_RANKS / options->tp)
    return invalidArgument("a mesh of dp " + std::to_string(options->dp) +
                           " x tp " + std::to_string(options->tp) +
                           "; at most " + std::to_string(MOERT_MOST_RANKS) +
                           " ranks are accepted");
  NcclOptions read;
  read.mesh = {options->dp, options->tp};
  if (options->limit_seconds != 0)
    read.limitSeconds = options->limit_seconds;
  return read;
}

static moert_status *keep(Result<std::unique_ptr<NcclCommunicator>> made,
                          const NcclOptions &options,
                          moert_communicator **communicator) {
  if (!made)
    return answer(made.status());
  Result<std::unique_ptr<Communicator>> chosen =
      chooseExchange(std::move(*made), options);
  if (!chosen)
    return answer(chosen.status());
  *communicator = new moert_communicator{std::move(*chosen)};
  return nullptr;
}

moert_status *
moert_communicator_from_environment(const moert_communicator_options *options,
                                    moert_communicator **communicator) {
  NEEDED(communicator);
  *communicator = nullptr;
  NEEDED(options);
  Result<NcclOptions> read = readOptions(options);
  if (!read)
    return answer(read.status());
  return keep(NcclCommunicator::fromEnvironment(*read), *read, communicator);
}

// NOLINTBEGIN(readability-identifier-naming): arguments are named as in
// moert.h, which messages cite.
moert_status *
moert_communicator_adopt_nccl(const moert_communicator_options *options,
                              int64_t rank, int ordinal, void *nccl_comm,
                              moert_communicator **communicator) {
  NEEDED(communicator);
  *communicator = nullptr;
  NEEDED(options);
  NEEDED(nccl_comm);
  Result<NcclOptions> read = readOptions(options);
  if (!read)
    return answer(read.status());
  read->rank = rank;
  read->ordinal = ordinal;
  return keep(NcclCommunicator::adopt(*read, nccl_comm), *read, communicator);
}
// NOLINTEND(readability-identifier-naming)

moert_status *
moert_communicator_create_local(const moert_communicator_options *options,
                                moert_device *device,
                                moert_communicator **communicators) {
  NEEDED(communicators);
  NEEDED(options);
  NEEDED(device);
  Result<NcclOptions> read = readOptions(options);
  if (!read)
    return answer(read.status());
  Result<std::shared_ptr<LocalGroup>> group =
      LocalGroup::create(read->mesh, read->limitSeconds);
  if (!group)
    return answer(group.status());
  std::vector<std::unique_ptr<Communicator>> joined;
  for (int64_t rank = 0; rank < read->mesh.numRanks(); ++rank) {
    Result<std::unique_ptr<Communicator>> made =
        (*group)->join(rank, *device->device);
    if (!made)
      return answer(made.status());
    joined.push_back(std::move(*made));
  }
  for (size_t rank = 0; rank < joined.size(); ++rank)
    communicators[rank] = new moert_communicator{std::move(joined[rank])};
  return nullptr;
}

int64_t moert_communicator_rank(const moert_communicator *communicator) {
  return communicator ? communicator->communicator->rank() : -1;
}

moert_status *moert_communicator_check(const moert_communicator *communicator) {
  NEEDED(communicator);
  return answer(communicator->communicator->check());
}

void moert_communicator_free(moert_communicator *communicator) {
  delete communicator;
}

void moert_layer_mesh(const moert_layer *layer, int64_t *dp, int64_t *tp) {
  Mesh mesh = layer ? layer->executor->plan().mesh : Mesh();
  if (dp)
    *dp = mesh.dp;
  if (tp)
    *tp = mesh.tp;
}

moert_status *moert_layer_use_micro_batches(moert_layer *layer,
                                            int64_t tokens) {
  NEEDED(layer);
  return answer(layer->executor->useMicroBatches(tokens));
}

moert_status *
moert_layer_use_communicator(moert_layer *layer,
                             const moert_communicator *communicator) {
  NEEDED(layer);
  NEEDED(communicator);
  return answer(layer->executor->useCommunicator(communicator->communicator));
}
