//===- PackageFootprint.cpp - bounds a package's memory ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In FlatBuffers two fields may share bytes. A forged file of some kilobytes
// could therefore list one string thousands of times and take gigabytes once it
// is read. A builder shares nothing but tables of fields, so its parts together
// fit in the file; this is checked before anything is copied.
//
//===----------------------------------------------------------------------===//

#include "PackageSchema.h"

namespace moert {

namespace fb = flatbuffers;

namespace {

/// Walks over a verified buffer and adds up the bytes of its parts, while they
/// fit.
class Footprint {
public:
  explicit Footprint(size_t bytes) : left(bytes) {}

  bool fits(const schema::Package &package) {
    return table() && text(package.producer()) && text(package.cache_key()) &&
           text(package.model_type()) && text(package.spec()) &&
           each(package.programs());
  }

private:
  bool take(size_t bytes) {
    if (bytes > left)
      return false;
    left -= bytes;
    return true;
  }

  bool table() { return take(sizeof(fb::soffset_t)); }
  bool text(const fb::String *text) {
    return !text || take(sizeof(fb::uoffset_t) + text->size() + 1);
  }
  template <typename T>
  bool list(const fb::Vector<T> *items) {
    return !items || take(sizeof(fb::uoffset_t) + items->size() * sizeof(T));
  }
  template <typename T>
  bool each(const fb::Vector<fb::Offset<T>> *items) {
    if (!items)
      return true;
    if (!list(items))
      return false;
    for (fb::uoffset_t i = 0; i < items->size(); ++i)
      if (!part(*items->Get(i)))
        return false;
    return true;
  }

  bool part(const fb::String &string) { return text(&string); }
  bool part(const schema::Program &program) {
    return table() && part(*program.plan()) && each(program.images());
  }
  bool part(const schema::Image &image) {
    return table() && text(image.target()) && each(image.modules());
  }
  bool part(const schema::Module &module) {
    return table() && list(module.bytes());
  }
  bool part(const schema::Plan &plan) {
    return table() && text(plan.target()) && each(plan.tensors()) &&
           each(plan.kernels()) && each(plan.variants()) &&
           each(plan.prepare());
  }
  bool part(const schema::Tensor &tensor) {
    return table() && text(tensor.name()) && text(tensor.dtype()) &&
           each(tensor.shape());
  }
  bool part(const schema::Kernel &kernel) {
    return table() && text(kernel.name()) && text(kernel.grid()) &&
           each(kernel.tensor_maps());
  }
  bool part(const schema::TensorMap &map) {
    return table() && list(map.sizes()) && list(map.along()) &&
           list(map.steps()) && list(map.box());
  }
  bool part(const schema::Variant &variant) {
    return table() && each(variant.steps());
  }
  bool part(const schema::Step &step) {
    return table() && each(step.args()) && list(step.routed_pairs());
  }
  bool part(const schema::Argument &argument) {
    return table() && text(argument.scalar());
  }

  size_t left;
};

} // namespace

bool fitsInto(const schema::Package &package, size_t bytes) {
  return Footprint(bytes).fits(package);
}

} // namespace moert
