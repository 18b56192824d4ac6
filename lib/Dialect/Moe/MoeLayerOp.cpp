#include "moec/Dialect/Moe/Moe.h"
using namespace mlir;
using namespace moec::moe;
LogicalResult LayerOp::verify() { return success(); }
LogicalResult LayerOp::verifyRegions() { return success(); }
static int64_t dim(Value v, int i) { return cast<RankedTensorType>(v.getType()).getDimSize(i); }
int64_t LayerOp::getNumLocalExperts() { return dim(getW13(), 0); }
int64_t LayerOp::getNumExperts() { return getPlacement() ? getPlacement()->getNumExperts() : getNumLocalExperts(); }
int64_t LayerOp::getNumRouted() { return getNumExperts() + getNumZeroExperts(); }
int64_t LayerOp::getTopK() { return getTopkIds() ? dim(getTopkIds(), 1) : getRouting()->getTopK(); }
int64_t LayerOp::getHiddenSize() { return dim(getHidden(), 1); }
int64_t LayerOp::getExpertWidth() { return getLatentDown() ? dim(getLatentDown(), 0) : getHiddenSize(); }
int64_t LayerOp::getIntermediateSize() { int64_t n = dim(getW13(), 1); return isGated() ? n / 2 : n; }
