//===- LoadTensors.cpp - tensors from a safetensors file --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostTensor.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"

#include <cstring>

using namespace moec;
using ElementType = moert::DType;
using moert::SafetensorsEntry;
using moert::Status;

namespace {

std::string printShape(llvm::ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (auto [i, size] : llvm::enumerate(shape))
    text += (i ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Shapes are the same tensor when they differ in dimensions of size 1 alone.
bool isSameShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  auto squeeze = [](llvm::ArrayRef<int64_t> shape) {
    std::vector<int64_t> sizes;
    llvm::copy_if(shape, std::back_inserter(sizes),
                  [](int64_t size) { return size != 1; });
    return sizes;
  };
  return squeeze(a) == squeeze(b);
}

/// Whether values of `from` become values of `to` without loss.
bool canWiden(ElementType from, ElementType to) {
  return from == to || (to == ElementType::F32 && (from == ElementType::BF16 ||
                                                   from == ElementType::F16));
}

/// Copies elements from a file into tensors; a failure names file and tensor.
class Loader {
public:
  Loader(const moert::SafetensorsFile &file, const std::string &path,
         llvm::ArrayRef<int64_t> expertIds)
      : file(file), path(path), expertIds(expertIds) {}

  Status load(const HostTensor &tensor, const TensorInfo *info) {
    if (const SafetensorsEntry *entry = file.find(tensor.name)) {
      if (Status status = check(*entry, tensor, tensor.shape); !status)
        return status;
      if (entry->dtype == tensor.dtype && entry->bytes > 0) {
        std::memcpy(tensor.data(), entry->data, entry->bytes);
        return Status::ok();
      }
      for (int64_t i = 0, e = tensor.getNumElements(); i < e; ++i)
        copy(*entry, i, tensor, i);
      return Status::ok();
    }
    std::string accepted = "'" + tensor.name + "'";
    for (const CheckpointForm &form :
         info ? info->checkpointForms : std::vector<CheckpointForm>()) {
      for (const CheckpointPart &part : form)
        accepted += ", '" + part.name + "'";
      if (isPresent(form))
        return loadForm(form, tensor);
    }
    return moert::notFound(path + ": no tensor for '" + tensor.name +
                           "'; accepted names: " + accepted);
  }

private:
  /// The names in the file that the part could have.
  std::vector<const SafetensorsEntry *> findAll(const CheckpointPart &part,
                                                int64_t expert) const {
    std::vector<const SafetensorsEntry *> found;
    for (const SafetensorsEntry &entry : file.entries())
      if (part.matches(entry.name, expert))
        found.push_back(&entry);
    return found;
  }

  bool isPresent(const CheckpointForm &form) const {
    return llvm::any_of(form, [&](const CheckpointPart &part) {
      return !findAll(part, expertIds.front()).empty();
    });
  }

  /// All parts of a layer share what stands before their own names. A file with
  /// several layers is ambiguous.
  Status findPrefix(const CheckpointPart &part, std::string &prefix) const {
    auto found = findAll(part, expertIds.front());
    std::string name = part.getName(expertIds.front());
    if (found.empty())
      return moert::notFound(path + ": no tensor '" + name +
                             "' for a part of the layer");
    if (found.size() > 1)
      return moert::invalidArgument(
          path + ": '" + found[0]->name + "' and '" + found[1]->name +
          "' both end in '" + name +
          "'; give a file with the tensors of one layer");
    prefix = found[0]->name.substr(0, found[0]->name.size() - name.size());
    return Status::ok();
  }

  Status loadForm(const CheckpointForm &form, const HostTensor &tensor) {
    for (const CheckpointPart &part : form) {
      std::string prefix;
      if (Status status = findPrefix(part, prefix); !status)
        return status;
      int64_t count = part.isPerExpert() ? tensor.shape[0] : 1;
      for (int64_t slot = 0; slot < count; ++slot) {
        std::string name =
            prefix + part.getName(part.isPerExpert() ? expertIds[slot] : 0);
        const SafetensorsEntry *entry = file.find(name);
        if (!entry)
          return moert::notFound(path + ": no tensor '" + name + "' for '" +
                                 tensor.name + "'");
        if (Status status = loadPart(part, *entry, tensor, slot); !status)
          return status;
      }
    }
    return Status::ok();
  }

  Status loadPart(const CheckpointPart &part, const SafetensorsEntry &entry,
                  const HostTensor &tensor, int64_t slot) {
    // What the destination holds per expert: rows x columns, a bias one column.
    bool isStacked =
        part.isPerExpert() || tensor.name.rfind("experts.", 0) == 0;
    size_t rank = tensor.shape.size() - (isStacked ? 1 : 0);
    int64_t columns = rank == 1 ? 1 : tensor.shape.back();
    int64_t rows =
        rank == 1 ? tensor.shape.back() : tensor.shape[tensor.shape.size() - 2];
    int64_t blocks =
        isStacked && !part.isPerExpert() ? tensor.shape.front() : 1;
    std::vector<int64_t> expected = {blocks, part.numRows, columns};
    if (part.transposed)
      std::swap(expected[1], expected[2]);
    if (Status status = check(entry, tensor, expected); !status)
      return status;
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t row = 0; row < part.numRows; ++row)
        for (int64_t column = 0; column < columns; ++column) {
          int64_t inner = part.transposed ? column * part.numRows + row
                                          : row * columns + column;
          int64_t target = part.firstRow + row * part.rowStride;
          copy(entry, block * part.numRows * columns + inner, tensor,
               ((slot + block) * rows + target) * columns + column);
        }
    return Status::ok();
  }

  Status check(const SafetensorsEntry &entry, const HostTensor &tensor,
               llvm::ArrayRef<int64_t> shape) const {
    std::string where = path + ": tensor '" + entry.name + "': ";
    if (!canWiden(entry.dtype, tensor.dtype))
      return moert::invalidArgument(
          where + "dtype is " + moert::dtypeName(entry.dtype) + ", expected " +
          moert::dtypeName(tensor.dtype));
    if (!isSameShape(entry.shape, shape))
      return moert::invalidArgument(where + "shape is " +
                                    printShape(entry.shape) + ", expected " +
                                    printShape(shape));
    return Status::ok();
  }

  static void copy(const SafetensorsEntry &entry, int64_t from,
                   const HostTensor &tensor, int64_t to) {
    size_t size = size_t(moert::dtypeBits(entry.dtype)) / 8;
    const uint8_t *source = entry.data + size_t(from) * size;
    if (entry.dtype == tensor.dtype) {
      std::memcpy(tensor.data() + size_t(to) * size, source, size);
      return;
    }
    uint16_t half;
    std::memcpy(&half, source, 2);
    float value;
    if (entry.dtype == ElementType::BF16) {
      uint32_t bits = uint32_t(half) << 16;
      std::memcpy(&value, &bits, 4);
    } else {
      value = toFloat(half);
    }
    std::memcpy(tensor.data() + size_t(to) * 4, &value, 4);
  }

  static float toFloat(uint16_t half) {
    llvm::APFloat wide(llvm::APFloat::IEEEhalf(), llvm::APInt(16, half));
    bool lost;
    wide.convert(llvm::APFloat::IEEEsingle(),
                 llvm::APFloat::rmNearestTiesToEven, &lost);
    return wide.convertToFloat();
  }

  const moert::SafetensorsFile &file;
  const std::string &path;
  llvm::ArrayRef<int64_t> expertIds;
};

} // namespace

Status moec::loadTensors(std::vector<HostTensor> &tensors,
                         const moert::SafetensorsFile &file,
                         const std::string &path,
                         const std::vector<TensorInfo> &signature,
                         llvm::ArrayRef<int64_t> expertIds) {
  Loader loader(file, path, expertIds);
  for (const HostTensor &tensor : tensors) {
    if (tensor.role == moert::TensorRole::Output)
      continue;
    auto info = llvm::find_if(signature, [&](const TensorInfo &candidate) {
      return candidate.name == tensor.name;
    });
    const TensorInfo *forms = info == signature.end() ? nullptr : &*info;
    if (Status status = loader.load(tensor, forms); !status)
      return status;
  }
  return Status::ok();
}
