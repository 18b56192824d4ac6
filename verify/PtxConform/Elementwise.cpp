//===- Elementwise.cpp - forms with one element per thread ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Elementwise.h"
#include "moec/PtxConform/Number.h"

namespace moec::conform {

std::string moduleHead(int64_t shared) {
  std::string text = ".version 8.6\n.target sm_90a\n.address_size 64\n\n";
  if (shared > 0)
    text += ".extern .shared .align 1024 .b8 smem[];\n\n";
  return text;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

namespace {

std::string registerName(const char *prefix, size_t operand, unsigned part,
                         unsigned count) {
  std::string text = prefix + std::to_string(operand);
  return count == 1 ? text : text + "_" + std::to_string(part);
}

class KernelText {
public:
  KernelText(const std::vector<Operand> &outputs,
             const std::vector<Operand> &inputs, int64_t block)
      : outputs(outputs), inputs(inputs), block(block) {}

  std::string print(const std::string &body, unsigned perThread,
                    unsigned perCta) {
    bool hasShared = perThread + perCta > 0;
    text = moduleHead(hasShared) + ".visible .entry conform(\n";
    size_t count = inputs.size() + outputs.size();
    for (size_t i = 0; i < count; ++i)
      text += "\t.param .u64 .ptr .global .align 16 b" + std::to_string(i) +
              (i + 1 < count ? ",\n" : "\n");
    text += ")\n.reqntid " + std::to_string(block) + "\n{\n";
    line(".reg .pred %p<8>");
    line(".reg .b16 %h<16>");
    line(".reg .b32 %t<32>, %thread, %cta, %lane, %gid, %smem, %sh");
    line(".reg .b64 %u<16>");
    declare("%a", inputs);
    declare("%d", outputs);
    line("mov.u32 %thread, %tid.x");
    line("mov.u32 %cta, %ctaid.x");
    line("and.b32 %lane, %thread, 31");
    line("mad.lo.s32 %gid, %cta, " + std::to_string(block) + ", %thread");
    if (hasShared) {
      line("mov.b32 %smem, smem");
      line("mad.lo.s32 %sh, %thread, " + std::to_string(perThread) + ", %smem");
      line("add.s32 %sh, %sh, " + std::to_string(perCta));
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      address("%in" + std::to_string(i), i, inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i)
      address("%out" + std::to_string(i), inputs.size() + i, outputs[i]);
    for (size_t i = 0; i < inputs.size(); ++i)
      move(i, /*isLoad=*/true);
    text += body;
    for (size_t i = 0; i < outputs.size(); ++i)
      move(i, /*isLoad=*/false);
    line("ret");
    return text + "}\n";
  }

private:
  void line(const std::string &instruction) {
    text += "\t" + instruction + ";\n";
  }

  void declare(const char *prefix, const std::vector<Operand> &operands) {
    for (size_t i = 0; i < operands.size(); ++i)
      for (unsigned part = 0; part < operands[i].count; ++part)
        line(std::string(".reg ") +
             (operands[i].isPredicate
                  ? ".pred "
                  : ".b" + std::to_string(operands[i].width) + " ") +
             registerName(prefix, i, part, operands[i].count));
  }

  void address(const std::string &pointer, size_t param,
               const Operand &operand) {
    line(".reg .b64 " + pointer);
    line("ld.param.b64 " + pointer + ", [b" + std::to_string(param) + "]");
    line("mad.wide.u32 " + pointer + ", %gid, " +
         std::to_string(operand.bytes()) + ", " + pointer);
  }

  void move(size_t index, bool isLoad) {
    const Operand &operand = isLoad ? inputs[index] : outputs[index];
    std::string pointer = (isLoad ? "%in" : "%out") + std::to_string(index);
    std::string type = ".b" + std::to_string(operand.width) + " ";
    for (unsigned part = 0; part < operand.count; ++part) {
      std::string name =
          registerName(isLoad ? "%a" : "%d", index, part, operand.count);
      std::string place =
          "[" + pointer + "+" + std::to_string(part * operand.width / 8) + "]";
      if (!isLoad && operand.isPredicate) {
        line("selp.b32 %t31, 1, 0, " + name);
        line("st.global.b32 " + place + ", %t31");
      } else if (!isLoad) {
        line("st.global" + type + place + ", " + name);
      } else if (operand.isPredicate) {
        line("ld.global.b32 %t31, " + place);
        line("setp.ne.b32 " + name + ", %t31, 0");
      } else {
        line("ld.global" + type + name + ", " + place);
      }
    }
  }

  const std::vector<Operand> &outputs, &inputs;
  const int64_t block;
  std::string text;
};

} // namespace

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

Form &Family::op(const std::string &instruction,
                 const std::vector<Operand> &outputs,
                 const std::vector<Operand> &inputs, const std::string &note) {
  std::string text = "\t" + instruction;
  const char *separator = " ";
  for (size_t i = 0; i < outputs.size(); ++i, separator = ", ")
    text += separator + registerName("%d", i, 0, 1);
  for (size_t i = 0; i < inputs.size(); ++i, separator = ", ")
    text += separator + registerName("%a", i, 0, 1);
  return body(note.empty() ? instruction : instruction + " [" + note + "]",
              text + ";\n", outputs, inputs);
}

Form &Family::body(const std::string &rowName, const std::string &text,
                   const std::vector<Operand> &outputs,
                   const std::vector<Operand> &inputs) {
  forms.emplace_back();
  Form &form = forms.back();
  form.name = rowName;
  form.family = name;
  form.grid = grid;
  form.block = block;
  form.shared = static_cast<int64_t>(perThread) * block + perCta;
  form.elements = grid * block;
  form.ptx = KernelText(outputs, inputs, block).print(text, perThread, perCta);
  for (const Operand &operand : inputs)
    form.buffers.push_back(
        {operand.bytes() * form.elements, false, Format::None});
  for (const Operand &operand : outputs)
    form.buffers.push_back(
        {operand.bytes() * form.elements, true, operand.format});
  size_t elements = form.elements;
  form.fill = [=](uint64_t seed) {
    Random random(formSeed(rowName, seed));
    uint64_t warpSeed = random.bits();
    Buffers buffers;
    for (const Operand &operand : inputs)
      buffers.emplace_back(operand.bytes() * elements);
    for (size_t element = 0; element < elements; ++element) {
      std::vector<uint64_t> drawn;
      for (size_t i = 0; i < inputs.size(); ++i)
        for (unsigned part = 0; part < inputs[i].count; ++part) {
          drawn.push_back(
              drawValue(inputs[i], random, element, warpSeed, drawn));
          size_t bytes = inputs[i].width / 8;
          std::memcpy(buffers[i].data() +
                          (element * inputs[i].count + part) * bytes,
                      &drawn.back(), bytes);
        }
    }
    // Outputs start with a pattern, so that missing stores show.
    for (const Operand &operand : outputs)
      buffers.emplace_back(operand.bytes() * elements, 0xa5);
    return buffers;
  };
  return form;
}

} // namespace moec::conform
