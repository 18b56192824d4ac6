/* Compiles a layer of f32 for this machine's CPU, fills its tensors and runs
 * it:
 *
 *   run_layer config.json [tokens]
 *
 * prints its output, a row per token. cc run_layer.c $(pkg-config --cflags
 * --libs moec) */

#include "moejit/moejit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(moert_status *status) {
  if (!status)
    return;
  fprintf(stderr, "run_layer: %s\n", moert_status_message(status));
  moert_status_free(status);
  exit(1);
}

/* Numbers between -0.5 and 0.5 that are the same everywhere; ids are slots. */
static void fill(const moert_tensor_info *info, void *data, int64_t count) {
  uint32_t state = (uint32_t)strlen(info->name);
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    if (!strcmp(info->dtype, "i32"))
      ((int32_t *)data)[i] = (int32_t)(i % info->shape[1]);
    else
      ((float *)data)[i] = (float)(state >> 16) / 65536.0f - 0.5f;
  }
}

int main(int argc, char **argv) {
  if (argc < 2 || moejit_api_version() != MOEJIT_API_VERSION) {
    fprintf(stderr, "usage: run_layer config.json [tokens]\n");
    return 2;
  }
  int64_t tokens = argc > 2 ? atoll(argv[2]) : 3;
  moejit_compiler *compiler;
  moert_device *device;
  moert_layer *layer;
  moejit_source source = {sizeof(source), argv[1]};
  check(moejit_compiler_create(NULL, &compiler));
  check(moejit_device_create_host(0, &device));
  check(moejit_load_layer(compiler, &source, device, NULL, &layer, NULL));

  float *output = NULL;
  int64_t width = 0;
  for (int i = 0; i < moert_layer_num_tensors(layer); ++i) {
    const moert_tensor_info *info = moert_layer_tensor(layer, i);
    int64_t shape[8], count = 1;
    for (int d = 0; d < info->rank; ++d) {
      shape[d] = d == 0 && info->depends_on_tokens ? tokens : info->shape[d];
      count *= shape[d];
    }
    if (strcmp(info->dtype, "f32") && strcmp(info->dtype, "i32")) {
      fprintf(stderr,
              "run_layer: '%s' has elements of %s; give a layer of f32\n",
              info->name, info->dtype);
      return 1;
    }
    void *data;
    check(moert_device_allocate(device, (size_t)count * 4, &data));
    if (info->role == MOERT_OUTPUT) {
      output = data;
      width = shape[1];
    } else
      fill(info, data, count);
    moert_tensor tensor = {info->name, info->dtype, data,
                           info->rank, shape,       NULL};
    check(moert_layer_bind(layer, &tensor));
  }
  check(moert_layer_prepare_weights(layer, NULL));
  check(moert_layer_run(layer, tokens, MOERT_LAYER_STREAM, NULL, 0));

  for (int64_t i = 0; i < tokens * width; ++i)
    printf("%.6g%c", output[i], (i + 1) % width ? ' ' : '\n');
  moert_layer_free(layer);
  moert_device_free(device); /* and the memory that it gave */
  moejit_compiler_free(compiler);
  return 0;
}
