//===- Picture.cpp - draws a layer ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../DescribeLayer.h"
#include "Parts.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;
using namespace moec::report;

std::string moec::report::showType(const moert::TensorDecl &tensor) {
  std::string text = "[";
  for (const moert::Expr &size : tensor.shape) {
    std::string shown = size.str();
    for (size_t at; (at = shown.find("tokens")) != std::string::npos;)
      shown.replace(at, 6, "T");
    text += (text.size() > 1 ? ", " : "") + shown;
  }
  return text + "] " + moert::dtypeName(tensor.dtype);
}

namespace {

constexpr double boxWidth = 166, boxHeight = 104, gap = 26, lineHeight = 15;

class Picture {
public:
  Picture(const Layer &layer, raw_ostream &os)
      : layer(layer), spec(*layer.spec),
        drawing(7 * boxWidth + 6 * gap + 4, spec.sharedExperts ? 330 : 172,
                "the layer", os) {}

  void draw();

private:
  static double getX(int column) { return 2 + column * (boxWidth + gap); }
  void drawBox(double x, double y, StringRef style, StringRef title,
               ArrayRef<std::string> lines, const Keys &keys);
  void drawArrow(int from, double shift = 0) {
    drawing.arrow(
        {{getX(from) + boxWidth + shift, middle}, {getX(from + 1), middle}});
  }
  void drawShared();
  /// Adds "experts.w13" and a second line with its shape and type; adds nothing
  /// for a tensor that the layer does not have.
  void addTensor(StringRef name, SmallVectorImpl<std::string> &lines);

  const Layer &layer;
  const LayerSpec &spec;
  Drawing drawing;
  static constexpr double top = 40, middle = top + boxHeight / 2;
};

void Picture::drawBox(double x, double y, StringRef style, StringRef title,
                      ArrayRef<std::string> lines, const Keys &keys) {
  drawing.box(x, y, boxWidth, boxHeight, style, keys);
  drawing.fittedText(x + 8, y + 18, boxWidth - 10, "title", title);
  for (auto [i, line] : llvm::enumerate(lines))
    drawing.fittedText(x + 8, y + 36 + lineHeight * double(i), boxWidth - 10,
                       "small", line);
}

void Picture::addTensor(StringRef name, SmallVectorImpl<std::string> &lines) {
  int64_t index = layer.plan.findTensor(name.str());
  if (index < 0)
    return;
  lines.push_back(name.str());
  lines.push_back("  " + showType(layer.plan.tensors[size_t(index)]));
}

static std::string describeProducts(const ExpertQuantization &quantization,
                                    StringRef dtype) {
  return quantization ? describe(quantization) : dtype.str();
}

void Picture::drawShared() {
  const SharedExpertsSpec &shared = *spec.sharedExperts;
  double y = top + boxHeight + 66;
  SmallVector<std::string> lines;
  addTensor("shared_experts.w13", lines);
  addTensor("shared_experts.w2", lines);
  StringRef activation = stringify(
      (shared.activation ? *shared.activation : spec.activation).kind);
  lines.push_back((activation + ", " +
                   describeProducts(shared.quantization, stringify(spec.dtype)))
                      .str());
  drawBox(getX(4), y, "product", "shared expert", lines,
          {"shared_hidden", "shared_out", "shared_experts.w13",
           "shared_experts.w2"});
  double from = getX(0) + boxWidth / 2, to = getX(5) + boxWidth / 2;
  drawing.arrow({{from, top + boxHeight},
                 {from, y + boxHeight / 2},
                 {getX(4), y + boxHeight / 2}});
  drawing.arrow({{getX(4) + boxWidth, y + boxHeight / 2},
                 {to, y + boxHeight / 2},
                 {to, top + boxHeight}});
  if (shared.gate != SharedGate::None)
    drawing.text(getX(4) + boxWidth + 8, y + boxHeight / 2 - 6, "small",
                 ("times " + stringify(shared.gate) + " of a gate").str());
}

void Picture::draw() {
  SmallVector<std::string> lines;
  std::string dtype = stringify(spec.dtype).str();
  std::string hidden = std::to_string(spec.hiddenSize);
  std::string topK = std::to_string(spec.topK);
  bool isGiven = spec.entry == Entry::Ids;

  drawBox(getX(0), top, "plain", "hidden states",
          {"[T, " + hidden + "] " + dtype,
           "T up to " + std::to_string(spec.maxTokens)},
          {"hidden_states"});
  drawArrow(0);

  addTensor("gate.weight", lines);
  lines.push_back("logits [T, " + std::to_string(spec.getNumRouted()) + "]");
  if (spec.entry != Entry::Gate)
    lines = {isGiven ? "not part of the layer" : "logits come with the call"};
  drawBox(getX(1), top, spec.entry == Entry::Gate ? "product" : "absent",
          "router", lines, {"router_logits", "gate.weight"});
  drawArrow(1);

  const RoutingSpec &routing = spec.routing;
  lines = {(stringify(routing.score) + ", " + stringify(routing.select)).str()};
  if (routing.numGroups > 1)
    lines.push_back(llvm::formatv("{0} of {1} groups", routing.topkGroups,
                                  routing.numGroups));
  if (routing.renormalize)
    lines.push_back("renormalized");
  if (routing.selectionBias)
    lines.push_back("selection bias");
  if (routing.scale != 1)
    lines.push_back(llvm::formatv("scale {0}", routing.scale));
  if (spec.replayIds)
    lines.emplace_back("ids come with the call");
  if (isGiven)
    lines = {"ids and weights come with", "the call"};
  drawBox(getX(2), top, isGiven ? "absent" : "routing", "top " + topK, lines,
          {"topk_ids", "topk_weights"});
  drawArrow(2);

  drawBox(getX(3), top, "routing", "dispatch",
          {"slots sorted by expert", "[T * " + topK + ", " +
                                         std::to_string(spec.getExpertWidth()) +
                                         "] rows"},
          {"expert_offsets", "position", "source", "row_weight"});
  drawArrow(3);
  // The arrow of input rows.
  drawing.arrow({{getX(0) + boxWidth / 2, top},
                 {getX(0) + boxWidth / 2, 16},
                 {getX(3) + boxWidth / 2, 16},
                 {getX(3) + boxWidth / 2, top}});

  lines.clear();
  addTensor("experts.w13", lines);
  addTensor("experts.w2", lines);
  lines.push_back((stringify(spec.activation.kind) + ", " +
                   describeProducts(spec.quantization, dtype))
                      .str());
  for (double shift : {8.0, 4.0})
    drawing.box(getX(4) + shift, top - shift, boxWidth, boxHeight, "product");
  drawBox(getX(4), top, "product",
          std::to_string(spec.getNumLocalExperts()) + " experts" +
              (spec.numZeroExperts
                   ? " + " + std::to_string(spec.numZeroExperts) + " identity"
                   : ""),
          lines,
          {"experts_hidden", "experts_out", "experts.w13", "experts.w2"});
  drawArrow(4, /*shift=*/8);
  if (spec.latentSize)
    drawing.text(getX(4), top + boxHeight + 16, "small",
                 "in a latent width of " + std::to_string(*spec.latentSize));

  drawBox(getX(5), top, "combine", "combine",
          {"sum of " + topK + " rows by weight",
           spec.sharedExperts ? "and the shared expert" : ""},
          {"output"});
  drawArrow(5);
  drawBox(getX(6), top, "plain", "output", {"[T, " + hidden + "] " + dtype},
          {"output"});
  if (spec.sharedExperts)
    drawShared();
}

} // namespace

void moec::report::drawLayer(const Layer &layer, raw_ostream &os) {
  if (layer.spec) {
    std::string words;
    llvm::raw_string_ostream line(words);
    describeLayer(*layer.spec, line);
    os << "<pre class=\"words\">" << escape(words) << "</pre>\n";
    Picture(layer, os).draw();
  } else {
    os << "<p>The input was IR, without a spec; only the layer's tensors are "
          "known.</p>\n";
  }
  os << "<details><summary>tensors</summary>\n";
  {
    Table table({"tensor", "role", "shape and type", "bytes"}, os);
    for (const moert::TensorDecl &tensor : layer.plan.tensors) {
      if (tensor.role == moert::TensorRole::Workspace)
        continue;
      auto elements = moert::Result<int64_t>(1);
      for (const moert::Expr &size : tensor.shape)
        if (auto value = size.evaluate(1); elements && value)
          *elements *= *value;
      bool isPerToken =
          !tensor.shape.empty() &&
          tensor.shape[0].str().find("tokens") != std::string::npos;
      table.addRow({tensor.name, moert::tensorRoleName(tensor.role),
                    showType(tensor),
                    showBytes(double(*elements) *
                              double(moert::dtypeBits(tensor.dtype)) / 8) +
                        (isPerToken ? " per token" : "")},
                   {tensor.name});
    }
  }
  os << "</details>\n";
}
