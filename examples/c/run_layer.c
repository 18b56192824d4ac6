/* Compiles an f32 layer for this machine's CPU, fills its tensors, runs it and
 * prints its output, one row per token. Build instructions: docs/use/c-api.md.
 *
 *   ./a.out config.json 3
 */
#include "moejit/moejit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(moert_status *status) {
  if (status) {
    fprintf(stderr, "run_layer: %s\n", moert_status_message(status));
    exit(1);
  }
}

int main(int argc, char **argv) {
  if (argc != 3)
    return fprintf(stderr, "usage: run_layer config.json tokens\n"), 2;
  int64_t tokens = atoll(argv[2]);
  moejit_source source = {sizeof(source), argv[1], NULL, 0, tokens};
  moejit_compiler *compiler;
  moert_device *device;
  moert_layer *layer;
  check(moejit_compiler_create(NULL, &compiler));
  check(moejit_device_create_host(0, &device));
  check(moejit_load_layer(compiler, &source, device, NULL, &layer, NULL));

  moert_tensor output = {0};
  for (int i = 0; i < moert_layer_num_tensors(layer); ++i) {
    const moert_tensor_info *info = moert_layer_tensor(layer, i);
    int64_t count = 1; /* in the largest call */
    for (int d = 0; d < info->rank; ++d)
      count *= info->shape[d];
    float *data;
    check(moert_device_allocate(device, (size_t)count * 4, (void **)&data));
    uint32_t state = (uint32_t)strlen(info->name); /* arbitrary */
    for (int64_t k = 0; k < count; ++k) {
      state = state * 1664525u + 1013904223u;
      data[k] = (float)(state >> 16) / 65536.0f - 0.5f;
    }
    moert_tensor tensor = {info->name, "f32", data, info->rank, info->shape, 0};
    check(moert_layer_bind(layer, &tensor)); /* fails unless f32 */
    if (info->role == MOERT_OUTPUT)
      output = tensor;
  }
  check(moert_layer_prepare_weights(layer, NULL));
  check(moert_layer_run(layer, tokens, MOERT_LAYER_STREAM, NULL, 0));

  for (int64_t i = 0, width = output.shape[1]; i < tokens * width; ++i)
    printf("%.6g%c", ((float *)output.data)[i], (i + 1) % width ? ' ' : '\n');
  moert_layer_free(layer);
  moert_device_free(device); /* and its memory */
  moejit_compiler_free(compiler);
  return 0;
}
