//===- StagedMessages.cpp - messages in host memory -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StagedMessages.h"

#include "../support/Check.h"
#include "Collectives.h"

#include <cstring>

namespace moert {

static std::vector<const Message *>
messagesOf(const std::vector<Message> &messages, int64_t rank) {
  std::vector<const Message *> found;
  for (const Message &message : messages)
    if (message.rank == rank)
      found.push_back(&message);
  return found;
}

static Status checkPair(int64_t from, const Transfer &sender, int64_t to,
                        const Transfer &receiver) {
  std::vector<const Message *> sent = messagesOf(sender.sends, to);
  std::vector<const Message *> received = messagesOf(receiver.receives, from);
  std::string ranks = sender.where + ": rank " + std::to_string(from) +
                      " sends rank " + std::to_string(to) + " ";
  if (sent.size() != received.size())
    return invalidArgument(ranks + std::to_string(sent.size()) +
                           " messages, and " + std::to_string(received.size()) +
                           " are expected there");
  for (size_t i = 0; i < sent.size(); ++i)
    if (sent[i]->bytes != received[i]->bytes)
      return invalidArgument(ranks + std::to_string(sent[i]->bytes) +
                             " bytes in message " + std::to_string(i) +
                             ", and " + std::to_string(received[i]->bytes) +
                             " are expected there");
  return Status::ok();
}

Status checkMessages(const std::vector<const Transfer *> &all) {
  for (size_t from = 0; from < all.size(); ++from)
    for (size_t to = 0; to < all.size(); ++to)
      MOERT_CHECK(checkPair(static_cast<int64_t>(from), *all[from],
                            static_cast<int64_t>(to), *all[to]));
  return Status::ok();
}

Status StagedMessages::copyOut(Stream &stream, const Transfer &transfer) {
  MOERT_CHECK(checkTransfer(mesh, transfer));
  MOERT_CHECK(device.synchronize(stream).withContext(transfer.where));
  hosted = transfer;
  size_t total = 0;
  for (const auto *messages : {&hosted.sends, &hosted.receives})
    for (const Message &message : *messages)
      total += static_cast<size_t>(message.bytes);
  memory.resize(total);
  char *next = memory.data();
  for (auto *messages : {&hosted.sends, &hosted.receives})
    for (Message &message : *messages) {
      auto bytes = static_cast<size_t>(message.bytes);
      if (messages == &hosted.sends && bytes > 0)
        MOERT_CHECK(device.copyOut(next, message.data, bytes)
                        .withContext(transfer.where));
      message.data = next;
      next += bytes;
    }
  return Status::ok();
}

void StagedMessages::receive(int64_t own, int64_t from,
                             const Transfer &sender) const {
  std::vector<const Message *> sent = messagesOf(sender.sends, own);
  std::vector<const Message *> received = messagesOf(hosted.receives, from);
  for (size_t i = 0; i < sent.size(); ++i)
    if (sent[i]->bytes > 0)
      memcpy(received[i]->data, sent[i]->data,
             static_cast<size_t>(sent[i]->bytes));
}

Status StagedMessages::copyIn(const Transfer &transfer) const {
  for (size_t i = 0; i < transfer.receives.size(); ++i) {
    const Message &message = transfer.receives[i];
    if (message.bytes > 0)
      MOERT_CHECK(device
                      .copyIn(message.data, hosted.receives[i].data,
                              static_cast<size_t>(message.bytes))
                      .withContext(transfer.where));
  }
  return Status::ok();
}

} // namespace moert
