#include "moec/Dialect/Plan/Plan.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionImplementation.h"
using namespace mlir;
using namespace moec::plan;
LogicalResult ExprAttr::verify(function_ref<InFlightDiagnostic()>, StringRef) { return success(); }
LogicalResult ProgramOp::verifyRegions() { return success(); }
LogicalResult TensorOp::verify() { return success(); }
LogicalResult BufferOp::verify() { return success(); }
LogicalResult PrepareOp::verifyRegions() { return success(); }
LogicalResult VariantOp::verify() { return success(); }
LogicalResult VariantOp::verifyRegions() { return success(); }
LogicalResult ReturnOp::verify() { return success(); }
LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &) { return success(); }
void KernelOp::build(OpBuilder &builder, OperationState &state, StringRef name, FunctionType type) {
  state.addAttribute(SymbolTable::getSymbolAttrName(), builder.getStringAttr(name));
  state.addAttribute(getFunctionTypeAttrName(state.name), TypeAttr::get(type));
  Block *body = new Block();
  for (Type input : type.getInputs())
    body->addArgument(input, state.location);
  state.addRegion()->push_back(body);
}
ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  auto type = [](Builder &builder, ArrayRef<Type> args, ArrayRef<Type> results, function_interface_impl::VariadicFlag,
                 std::string &) { return builder.getFunctionType(args, results); };
  return function_interface_impl::parseFunctionOp(parser, result, false, getFunctionTypeAttrName(result.name), type,
                                                  getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}
void KernelOp::print(OpAsmPrinter &p) {
  function_interface_impl::printFunctionOp(p, *this, false, getFunctionTypeAttrName(), getArgAttrsAttrName(), getResAttrsAttrName());
}
