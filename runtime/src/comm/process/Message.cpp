//===- Message.cpp - messages between processes of a group ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Message.h"

#include <cstring>

namespace moert {

namespace {

class Writer {
public:
  void number(int64_t value) {
    bytes.append(reinterpret_cast<const char *>(&value), sizeof(value));
  }
  void text(const std::string &value) {
    number(static_cast<int64_t>(value.size()));
    bytes += value;
  }

  std::string bytes;
};

class Reader {
public:
  explicit Reader(const std::string &bytes) : bytes(bytes) {}

  int64_t number() {
    int64_t value = 0;
    if (isWhole && bytes.size() - at >= sizeof(value)) {
      memcpy(&value, bytes.data() + at, sizeof(value));
      at += sizeof(value);
    } else {
      isWhole = false;
    }
    return value;
  }
  int64_t below(int64_t end) {
    int64_t value = number();
    isWhole = isWhole && value >= 0 && value < end;
    return isWhole ? value : 0;
  }
  std::string text() {
    auto size = static_cast<size_t>(number());
    if (!isWhole || size > bytes.size() - at) {
      isWhole = false;
      return "";
    }
    at += size;
    return bytes.substr(at - size, size);
  }
  bool hasAll() const { return isWhole && at == bytes.size(); }
  bool isOk() const { return isWhole; }

private:
  const std::string &bytes;
  size_t at = 0;
  bool isWhole = true;
};

} // namespace

Request DecodedRequest::get() {
  Request request;
  switch (kind) {
  case Kind::Text:
    request.subject = &subject;
    request.what = &what;
    break;
  case Kind::Collective:
    collective.parts = parts.data();
    request.collective = &collective;
    break;
  case Kind::Transfer:
    request.transfer = &transfer;
    break;
  }
  return request;
}

static void writeCollective(Writer &writer, const Collective &collective) {
  writer.number(static_cast<int64_t>(collective.kind));
  writer.number(static_cast<int64_t>(collective.axis));
  writer.text(collective.where);
  writer.number(static_cast<int64_t>(collective.numParts));
  for (size_t i = 0; i < collective.numParts; ++i) {
    writer.number(static_cast<int64_t>(collective.parts[i].dtype));
    writer.number(collective.parts[i].count);
  }
}

static void writeTransfer(Writer &writer, const Transfer &transfer) {
  writer.text(transfer.where);
  for (const auto *messages : {&transfer.sends, &transfer.receives}) {
    writer.number(static_cast<int64_t>(messages->size()));
    for (const Message &message : *messages) {
      writer.number(message.rank);
      writer.number(message.bytes);
    }
  }
}

std::string encodeRequest(const Request &request) {
  using Kind = DecodedRequest::Kind;
  Writer writer;
  Kind kind = request.collective ? Kind::Collective
              : request.transfer ? Kind::Transfer
                                 : Kind::Text;
  writer.number(static_cast<int64_t>(kind));
  switch (kind) {
  case Kind::Text:
    writer.text(*request.subject);
    writer.text(*request.what);
    break;
  case Kind::Collective:
    writeCollective(writer, *request.collective);
    break;
  case Kind::Transfer:
    writeTransfer(writer, *request.transfer);
    break;
  }
  return writer.bytes;
}

static void readCollective(Reader &reader, DecodedRequest &request) {
  Collective &collective = request.collective;
  collective.kind = static_cast<CollectiveKind>(reader.below(3));
  collective.axis = static_cast<MeshAxis>(reader.below(2));
  collective.where = reader.text();
  int64_t numParts = reader.below(MessageHead::kMostBytes);
  for (int64_t i = 0; i < numParts && reader.isOk(); ++i) {
    CollectivePart &part = request.parts.emplace_back();
    part.dtype =
        static_cast<DType>(reader.below(static_cast<int64_t>(kLastDType) + 1));
    part.count = reader.number();
  }
  collective.numParts = request.parts.size();
}

static void readTransfer(Reader &reader, Transfer &transfer) {
  // Small enough that the sum over a request's messages does not overflow.
  constexpr int64_t mostBytes = int64_t(1) << 46;
  transfer.where = reader.text();
  for (auto *messages : {&transfer.sends, &transfer.receives}) {
    int64_t numMessages = reader.below(MessageHead::kMostBytes);
    for (int64_t i = 0; i < numMessages && reader.isOk(); ++i) {
      Message &message = messages->emplace_back();
      message.rank = reader.number();
      message.bytes = reader.below(mostBytes);
    }
  }
}

std::optional<DecodedRequest> decodeRequest(const std::string &bytes) {
  using Kind = DecodedRequest::Kind;
  Reader reader(bytes);
  DecodedRequest request;
  request.kind = static_cast<Kind>(reader.below(3));
  switch (request.kind) {
  case Kind::Text:
    request.subject = reader.text();
    request.what = reader.text();
    break;
  case Kind::Collective:
    readCollective(reader, request);
    break;
  case Kind::Transfer:
    readTransfer(reader, request.transfer);
    break;
  }
  if (!reader.hasAll())
    return std::nullopt;
  return request;
}

} // namespace moert
