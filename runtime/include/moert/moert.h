/*===- moert.h - the runtime for C ------------------------------*- C -*-===*\
|*                                                                            *|
|* Part of moec, under the Apache License v2.0 with LLVM Exceptions.          *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef MOERT_MOERT_H
#define MOERT_MOERT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOERT_API __attribute__((visibility("default")))
#else
#define MOERT_API
#endif

/*
 * How a layer runs:
 *
 *   moert_package *package;  moert_device *device;  moert_layer *layer;
 *   moert_package_open("layer.moepkg", &package);
 *   moert_device_create_cuda(0, &device);
 *   moert_layer_create(package, device, NULL, &layer);
 *   moert_layer_bind(layer, &weight);               all weights
 *   moert_layer_prepare_weights(layer, NULL);       once
 *   moert_layer_bind(layer, &hidden_states);        inputs and outputs
 *   moert_layer_run(layer, tokens, stream, workspace, bytes);
 *
 * Every call that can fail answers NULL for success, or a status that the
 * caller frees. What a failing call should have made is set to NULL.
 *
 * Handles are opaque and made and freed by the calls here. A function that
 * frees takes NULL too. What each handle asks of threads, contexts and
 * lifetimes stands above its type; with none of them does it matter which
 * thread or which context made it, and every call leaves the context current
 * that it found.
 *
 * A handle is freed by one thread when no other uses it. What is the caller's
 * (bound memory, workspaces, streams) lives until the runs with it are
 * complete.
 *
 * moert.hpp has the same for C++.
 */

/* Raised whenever a call or a structure changes. */
#define MOERT_API_VERSION 8

/* The MOERT_API_VERSION that the library was built with. */
MOERT_API int moert_api_version(void);

/*===----------------------------------------------------------------------===*\
 * Status
\*===----------------------------------------------------------------------===*/

/* What kind of failure a status is. */
typedef enum moert_code {
  /* None. */
  MOERT_OK = 0,
  /* An argument, file or description is wrong. */
  MOERT_INVALID_ARGUMENT = 1,
  /* There is no file, tensor or kernel of the name. */
  MOERT_NOT_FOUND = 2,
  /* A number is beyond what there is, as of tokens or devices. */
  MOERT_OUT_OF_RANGE = 3,
  /* There is not enough memory. */
  MOERT_RESOURCE_EXHAUSTED = 4,
  /* A driver, device, library, file or rank cannot be used, or a device has
   * not what is asked of it. */
  MOERT_UNAVAILABLE = 5,
  /* The library or the driver did what it should not. */
  MOERT_INTERNAL = 6
} moert_code;

/* Threads: read by any number. Contexts: none needed. Lifetime: until it is
 * freed, also after the handle that it came from. */
typedef struct moert_status moert_status;

/* MOERT_OK for NULL. */
MOERT_API moert_code moert_status_code(const moert_status *status);
/* Names the call, the tensor or field, what was expected and found, and what
 * to change; "" for NULL. Lives as long as the status. */
MOERT_API const char *moert_status_message(const moert_status *status);
/* NULL is accepted, here and by all that frees. */
MOERT_API void moert_status_free(moert_status *status);

/*===----------------------------------------------------------------------===*\
 * Packages
\*===----------------------------------------------------------------------===*/

/* Threads: never changes, so that any number may use it at once. Contexts:
 * none needed. Lifetime: layers keep what they need of it, so that it may be
 * freed before them. */
typedef struct moert_package moert_package;

/* Reads and verifies a .moepkg. */
MOERT_API moert_status *moert_package_open(const char *path,
                                           moert_package **package);
/* The same from memory, which is copied. */
MOERT_API moert_status *moert_package_from_memory(const void *data, size_t size,
                                                  moert_package **package);
/* Layers that were made from it go on. */
MOERT_API void moert_package_free(moert_package *package);

/* The layer as JSON, "" where the package has none. Lives as long as the
 * package. */
MOERT_API const char *moert_package_spec(const moert_package *package);

/*===----------------------------------------------------------------------===*\
 * Devices
\*===----------------------------------------------------------------------===*/

/* Threads: any call at any time, from any number. Contexts: a CUDA device
 * retains the primary context of its GPU, the one that the CUDA runtime and
 * PyTorch use; each call makes it current for its own length. Lifetime: freed
 * after the layers and workspaces that were made for it; memory of
 * moert_device_allocate() that is left goes with it. */
typedef struct moert_device moert_device;

/* GPU number `ordinal` as the driver counts them. MOERT_UNAVAILABLE where
 * there is no driver or no GPU. */
MOERT_API moert_status *moert_device_create_cuda(int ordinal,
                                                 moert_device **device);
/* Frees memory of moert_device_allocate() too; layers and workspaces of the
 * device are freed before. */
MOERT_API void moert_device_free(moert_device *device);

/* "cuda:0 (NVIDIA H200)", "host". Lives as long as the device. */
MOERT_API const char *moert_device_name(const moert_device *device);

/* Memory of the device, aligned to 256 bytes, for callers that have no other
 * means. 0 bytes give NULL. */
MOERT_API moert_status *moert_device_allocate(moert_device *device,
                                              size_t bytes, void **memory);
/* The memory of moert_device_allocate(). */
MOERT_API void moert_device_release(moert_device *device, void *memory);
/* Copies `bytes` of the caller's memory to the device's, complete on return. It
 * does not wait for what streams do. */
MOERT_API moert_status *moert_device_copy_in(moert_device *device, void *to,
                                             const void *from, size_t bytes);
/* Copies `bytes` of the device's memory to the caller's, complete on return. It
 * does not wait for what streams do. */
MOERT_API moert_status *moert_device_copy_out(moert_device *device, void *to,
                                              const void *from, size_t bytes);

/* Returns when the work that was given to `stream`, one of
 * moert_layer_run()'s, is complete. The host has none: there all work is
 * complete when the call that gives it returns. */
MOERT_API moert_status *moert_device_synchronize(moert_device *device,
                                                 void *stream);

/* Called once, with an object that nobody uses any more, in any thread that
 * calls this library. */
typedef void (*moert_release_fn)(void *object);

/* `stream` is being captured: the graph owns `object` from now on. When the
 * graph and all that was instantiated from it are destroyed, a later call of
 * this library, such as one that allocates or frees, releases it. A call that
 * fails releases it too. */
MOERT_API moert_status *moert_device_retain(moert_device *device, void *stream,
                                            void *object,
                                            moert_release_fn release);

/*===----------------------------------------------------------------------===*\
 * Layers
\*===----------------------------------------------------------------------===*/

/* Threads: one call at a time, from any thread; layers, clones included, are
 * independent of each other and run at once. Contexts: those of its device;
 * streams are of the same primary context. Lifetime: freed before its device,
 * when its runs are complete. A clone may outlive the layer that it came
 * from. */
typedef struct moert_layer moert_layer;

/* How a layer is made; all 0 but for `size` is as without options. */
typedef struct moert_layer_options {
  /* sizeof(moert_layer_options), so that later versions may add fields. */
  size_t size;
  /* Not 0: fill workspace and outputs with NaN before each run. */
  int poison;
} moert_layer_options;

/* Chooses the image for the device and loads it. `options` may be NULL. */
MOERT_API moert_status *moert_layer_create(const moert_package *package,
                                           moert_device *device,
                                           const moert_layer_options *options,
                                           moert_layer **layer);
/* A second layer for a micro-batch that overlaps with that of the first: it
 * shares code, weights and prepared weights, and has inputs, outputs and
 * workspace of its own. */
MOERT_API moert_status *moert_layer_clone(const moert_layer *layer,
                                          moert_layer **clone);
/* Its runs are complete before. Clones go on. */
MOERT_API void moert_layer_free(moert_layer *layer);

/* What a tensor is to a layer. */
typedef enum moert_role {
  /* Read by every run. */
  MOERT_INPUT = 0,
  /* Bound once, and prepared before the first run. */
  MOERT_WEIGHT = 1,
  /* Written by every run. */
  MOERT_OUTPUT = 2,
  /* Made from weights when they are prepared, and read by runs. */
  MOERT_PREPARED = 3
} moert_role;

/* A tensor that a layer takes or gives. */
typedef struct moert_tensor_info {
  /* As in docs/layers.md: "experts.w13". */
  const char *name;
  /* "bf16", "f32", "i32", ... */
  const char *dtype;
  /* Whether it is an input, a weight or an output. */
  moert_role role;
  /* The number of dimensions. */
  int rank;
  /* The shape of a call with max_tokens tokens. */
  const int64_t *shape;
  /* Not 0: the first dimension is smaller with fewer tokens. */
  int depends_on_tokens;
  /* Bytes that the address is a multiple of. */
  int64_t alignment;
  /* Not 0: may be bound with gaps between its rows. */
  int strided;
  /* Not 0: a weight that is prepared. What is written to it afterwards counts
   * when the weights are prepared again. */
  int prepared;
  /* Of a weight, not 0: runs read its memory. They do not where they read only
   * what was prepared of it. */
  int read_by_runs;
} moert_tensor_info;

/* Of a layer of several ranks, tokens are those of one, here and in every
 * call. */
MOERT_API int64_t moert_layer_max_tokens(const moert_layer *layer);

/* What a call runs, as JSON: `target`, `max_tokens`, `streams`; `variants`,
 * each with `min_tokens`, `max_tokens` and `steps` in order, a step being a
 * launch (`stream`, `kernel`, `dependent`), an event (`stream`, `record` or
 * `wait`) or what ranks do together (`stream`, `collective`, `axis`);
 * `kernels` with `name`, `grid` (of `tokens`), `block` and `shared`
 * (bytes); `tensors` with `name`, `role`, `dtype`, `shape` (of `tokens`) and,
 * in the workspace, `slot`. Lives as long as the layer. */
MOERT_API const char *moert_layer_plan(const moert_layer *layer);
/* The layer as JSON (docs/layers.md), "" where its source was IR. Lives as long
 * as the layer. */
MOERT_API const char *moert_layer_spec(const moert_layer *layer);

/* How many tensors there are to bind. */
MOERT_API int moert_layer_num_tensors(const moert_layer *layer);
/* One of them; NULL for an index out of range. Lives as long as the layer. */
MOERT_API const moert_tensor_info *moert_layer_tensor(const moert_layer *layer,
                                                      int index);

/* How many tensors the layer prepares in memory of its own, or in the caller's
 * where that is bound. */
MOERT_API int moert_layer_num_prepared(const moert_layer *layer);
/* One of them; NULL for an index out of range. Lives as long as the layer. */
MOERT_API const moert_tensor_info *
moert_layer_prepared(const moert_layer *layer, int index);

/* Memory of the caller's that is bound to a tensor of a layer. */
typedef struct moert_tensor {
  /* As moert_tensor_info has it. */
  const char *name;
  /* As moert_tensor_info has it. */
  const char *dtype;
  /* On the device of the layer. */
  void *data;
  /* The number of dimensions. */
  int rank;
  /* Their sizes, in elements. */
  const int64_t *shape;
  /* In elements; NULL for a contiguous tensor. */
  const int64_t *strides;
} moert_tensor;

/* Checks name, dtype, shape, strides, alignment and device. The structure is
 * read before the call returns; the memory stays the caller's.
 *
 * A tensor of moert_layer_prepared() may be bound too, ahead of
 * moert_layer_prepare_weights(), which writes it there and allocates nothing
 * for it. The memory serves the weights that are bound then: with other weights
 * it is bound anew, or the layer allocates. */
MOERT_API moert_status *moert_layer_bind(moert_layer *layer,
                                         const moert_tensor *tensor);

/* What preparing the weights took. */
typedef struct moert_prepare_report {
  /* Memory that was allocated for prepared weights, beside what is bound for
   * them. */
  int64_t bytes;
  /* Weights that were prepared where they are: their memory has other contents
   * now, which belong to this layer and its clones. */
  int64_t in_place_bytes;
  /* Wall-clock time. */
  double seconds;
} moert_prepare_report;

/* Needed once after the weights are bound, and after one is bound anew; then
 * those that were prepared in place are bound anew too. Waits for the device.
 * `report` may be NULL. A call when nothing was bound anew only reports. */
MOERT_API moert_status *
moert_layer_prepare_weights(moert_layer *layer, moert_prepare_report *report);
/* Prepares what the bound weights hold now, after they were written to, in the
 * memory that prepared weights have already: clones and captured graphs use the
 * new ones too. Their runs and replays are complete before; for the layer's own
 * runs the call waits. Refused where weights were prepared in place: those are
 * bound anew. `report` may be NULL. */
MOERT_API moert_status *moert_layer_prepare_again(moert_layer *layer,
                                                  moert_prepare_report *report);

/* Lets go of the weights that runs do not read (moert_tensor_info), once they
 * are prepared: their memory may be freed, and what the layer itself has loaded
 * is. Before weights are prepared again all of these are bound anew. */
MOERT_API moert_status *moert_layer_release_weights(moert_layer *layer);

/* How much of a call is done, in bytes. Called in the thread of the call. */
typedef void (*moert_step_fn)(void *user, uint64_t done, uint64_t all);

/* How a file of prepared weights is written and read; all 0 but for `size` is
 * as without options. */
typedef struct moert_prepared_options {
  /* sizeof(moert_prepared_options), so that later versions may add fields. */
  size_t size;
  /* Of a layer of several ranks: whose weights these are. NULL: those of the
   * rank that is known by its communicator, or by what loaded the weights; a
   * file says itself whose it is. */
  const int64_t *rank;
  /* Not 0: what is read is not compared with the digests in the file. */
  int no_digests;
  /* Told of what is done; NULL: nobody is. */
  moert_step_fn step;
  /* The `user` of its calls. */
  void *step_user;
} moert_prepared_options;

/* Writes what runs read of the weights, prepared or as they are, to a file of
 * safetensors (docs/runtime.md), whole or not at all; prepares them before,
 * where that is due. `options` may be NULL. */
MOERT_API moert_status *
moert_layer_write_prepared(moert_layer *layer, const char *path,
                           const moert_prepared_options *options);
/* In place of binding weights and preparing them: reads a file that the same
 * layer has written, into memory of the device that belongs to the layer and
 * its clones. A file of another layer, target, version or rank, and one that is
 * damaged, is refused, and all is as before then. `options` may be NULL. */
MOERT_API moert_status *
moert_layer_bind_prepared(moert_layer *layer, const char *path,
                          const moert_prepared_options *options);

/* Bytes of a workspace that serves every call of up to `tokens` tokens. */
MOERT_API moert_status *moert_layer_workspace_bytes(const moert_layer *layer,
                                                    int64_t tokens,
                                                    int64_t *bytes);

/* Workspace that several layers share, of two slots for two micro-batches that
 * overlap: the layers of one micro-batch use slot 0, their clones slot 1. Runs
 * in one slot follow each other, whatever streams and threads give them.
 *
 * Threads: never changes, so that any number may use it at once. Contexts:
 * those of its device. Lifetime: layers keep what they use of it, so that it
 * may be freed before them; its device is freed after both. */
typedef struct moert_workspace moert_workspace;

/* `bytes` are those of a slot: the most that moert_layer_workspace_bytes()
 * answers for the layers that will use it. */
MOERT_API moert_status *moert_workspace_create(moert_device *device,
                                               int64_t bytes,
                                               moert_workspace **workspace);
/* The memory goes with the last layer that uses it. */
MOERT_API void moert_workspace_free(moert_workspace *workspace);

/* From now on runs of the layer with `workspace` NULL take slot 0 or 1; NULL
 * for memory of the layer's own again. Waits for the layer's runs. */
MOERT_API moert_status *
moert_layer_use_workspace(moert_layer *layer, const moert_workspace *workspace,
                          int slot);

/*===----------------------------------------------------------------------===*\
 * Ranks
\*===----------------------------------------------------------------------===*/

/* One rank's connection to those that share layers with it
 * (docs/parallel.md). All ranks make the same calls in the same order.
 *
 * Threads: one call at a time, from any thread. Contexts: those of its GPU.
 * Lifetime: layers keep what they use of it, so that it may be freed before
 * them; a device is freed after both. */
typedef struct moert_communicator moert_communicator;

/* Which ranks there are, and how they wait for each other. */
typedef struct moert_communicator_options {
  /* sizeof(moert_communicator_options), so that later versions may add
   * fields. */
  size_t size;
  /* Groups of ranks with tokens of their own, and ranks of a group, which share
   * them: dp * tp ranks, of which r is number r % tp of group r / tp. Of a spec
   * with 'pcp' there are dp * pcp groups. */
  int64_t dp, tp;
  /* How long a rank waits for the others in one call; 0 for 60 seconds. */
  double limit_seconds;
} moert_communicator_options;

/* Connects the ranks that torchrun, Open MPI or Slurm started, one process per
 * GPU, by NCCL; docs/parallel.md has the variables of the environment. */
MOERT_API moert_status *
moert_communicator_from_environment(const moert_communicator_options *options,
                                    moert_communicator **communicator);
/* The same by an ncclComm_t of the caller's with all of the ranks, which has
 * been made with the libnccl that is loaded. All ranks call it. It is not used
 * afterwards, and neither aborted nor destroyed. `ordinal` is the GPU of this
 * rank. */
MOERT_API moert_status *
moert_communicator_adopt_nccl(const moert_communicator_options *options,
                              int64_t rank, int ordinal, void *nccl_comm,
                              moert_communicator **communicator);
/* Ranks that are threads of this process on one device, for tests: rows go
 * through host memory, and no graph is captured. `communicators` has room for
 * dp * tp. */
MOERT_API moert_status *
moert_communicator_create_local(const moert_communicator_options *options,
                                moert_device *device,
                                moert_communicator **communicators);
/* The number of this rank, 0 to dp * tp - 1. */
MOERT_API int64_t
moert_communicator_rank(const moert_communicator *communicator);
/* Success as long as nobody is known to have failed; waits for nothing. After a
 * failure every call answers the first one, and a new one has to be made. */
MOERT_API moert_status *
moert_communicator_check(const moert_communicator *communicator);
/* Layers that use it go on. */
MOERT_API void moert_communicator_free(moert_communicator *communicator);

/* The ranks that a layer is for, as a communicator counts them; 1 and 1 for
 * most. Either may be NULL. */
MOERT_API void moert_layer_mesh(const moert_layer *layer, int64_t *dp,
                                int64_t *tp);
/* Of a layer of several ranks: a run of `tokens` tokens per rank or more is two
 * halves of its batch, of which one exchanges rows beside what the other
 * computes (docs/parallel.md, "Micro-batches"); 0 for never, as without this
 * call. Called ahead of moert_layer_use_communicator(), with the same number on
 * all ranks; layers with an output or input that has no rows of tokens are
 * refused. */
MOERT_API moert_status *moert_layer_use_micro_batches(moert_layer *layer,
                                                      int64_t tokens);
/* What a layer of several ranks needs before its first run. Asks the others
 * whether they have the same layer: all ranks call it. */
MOERT_API moert_status *
moert_layer_use_communicator(moert_layer *layer,
                             const moert_communicator *communicator);

/*===----------------------------------------------------------------------===*\
 * Experts that move between ranks
\*===----------------------------------------------------------------------===*/

/* A layer with `replicas` has physical experts, each of which is one of an
 * expert (docs/parallel.md). A map says of which: `num_physical` numbers of
 * experts, in the order of physical ones, and over several ranks those of rank
 * 0 first. From time to time:
 *
 *   moert_layer_sum_loads(...)       how often each expert was chosen
 *   moert_balance_experts(...)       a map for loads like these
 *   moert_expert_move_begin(...)     its experts, to memory of the caller's
 *   moert_expert_move_step(...)      once for each of a rank's experts, with
 *                                    runs of the layer in between
 *   moert_expert_move_switch(...)    from the next run on
 */

/* What the layer's `replicas.physical_ids` (num_experts x max_replicas) and
 * `replicas.counts` (num_experts) hold by a map. Of an expert that it has more
 * than `max_replicas` times the first ones are used. */
MOERT_API moert_status *
moert_replica_tables(const int64_t *map, int64_t num_physical,
                     int64_t num_experts, int64_t max_replicas,
                     int32_t *physical_ids, int32_t *counts);

/* Which ranks there are, and what a map has to be like. */
typedef struct moert_balance_options {
  /* sizeof(moert_balance_options), so that later versions may add fields. */
  size_t size;
  /* Experts, each of which has a load. */
  int64_t num_experts;
  /* Physical experts: a multiple of num_ranks, num_experts at least. */
  int64_t num_physical;
  /* Groups of neighbouring experts that a token's choice is limited to; 1 for
   * none. Where num_nodes divides it a group's experts are on one node. */
  int64_t num_groups;
  /* Nodes, and the ranks on all of them together. */
  int64_t num_nodes, num_ranks;
  /* As many as an expert may have; 0 for any number. */
  int64_t max_replicas;
} moert_balance_options;

/* A map for experts with these loads, by the expert-parallel load balancer of
 * DeepSeek; `map` has room for num_physical. */
MOERT_API moert_status *
moert_balance_experts(const moert_balance_options *options, const double *loads,
                      int64_t *map);

/* How often each expert was chosen on all ranks: `own` has the numbers of this
 * rank's physical experts, such as the caller has summed of `expert_offsets`.
 * All ranks call it, with the same map, and wait for each other. */
MOERT_API moert_status *moert_layer_sum_loads(
    moert_layer *layer, const moert_communicator *communicator,
    const int64_t *own, int64_t num_own, const int64_t *map,
    int64_t num_physical, int64_t *loads, int64_t num_experts);

/* Experts of a layer on their way to where another map has them, beside its
 * runs. A call that fails leaves the layer on its old map and memory, and ends
 * the move: later calls answer the same.
 *
 * Threads: one call at a time, from any thread, and none while another call
 * uses the layer or its communicator. Contexts: those of the layer's device.
 * Lifetime: freed before the layer. The memory is the caller's; where the
 * communicator has failed it lives until that is freed. */
typedef struct moert_expert_move moert_expert_move;

/* `from` is the map that the layer has, `to` the one that it will have.
 * `spare` is memory that nothing uses for each tensor that moves: the experts'
 * but for scales that all inputs share, `replicas.physical_ids` and
 * `replicas.counts`; the layer is bound to it at the end, and what it was bound
 * to before can serve the next move. All ranks call it, with the same maps. A
 * communicator other than the layer's lets the layer go on where a rank fails
 * to move. */
MOERT_API moert_status *moert_expert_move_begin(
    moert_layer *layer, const moert_communicator *communicator,
    const int64_t *from, const int64_t *to, int64_t num_physical,
    const moert_tensor *spare, int num_spare, moert_expert_move **move);
/* Steps that are left. */
MOERT_API int64_t moert_expert_move_num_steps(const moert_expert_move *move);
/* Gives one expert for each rank to a stream of the move's own. All ranks call
 * it, as often, and in the same order with other calls on the communicator. */
MOERT_API moert_status *moert_expert_move_step(moert_expert_move *move);
/* When all steps were given: waits for those of all ranks, and binds the layer
 * to the new memory at once. Runs that were given before are complete before
 * the old memory is used for anything else; clones and captured graphs still
 * have it. */
MOERT_API moert_status *moert_expert_move_switch(moert_expert_move *move);
/* Of a move that has not ended nothing remains but what is in its memory. */
MOERT_API void moert_expert_move_free(moert_expert_move *move);

/* The stream of the layer itself, for callers that have none. */
#define MOERT_LAYER_STREAM ((void *)(intptr_t)-1)

/* Runs the layer on `tokens` tokens.
 *
 * `stream` is a CUstream or cudaStream_t, NULL being the default stream, or
 * MOERT_LAYER_STREAM, which alone a layer on the host takes. The call gives
 * work to it and returns; it waits for nothing. (On the host it returns when
 * the run is complete.) `workspace` is aligned to 256 bytes. With NULL the
 * layer uses what moert_layer_use_workspace() gave it, else one of its own and,
 * where that has to grow, waits and allocates. A run on another stream than the
 * layer's latest one begins, on the device, after that one.
 *
 * In a stream that is being captured the run becomes part of the graph. The
 * graph owns the code and what belongs to the layer: prepared and loaded
 * weights, and the workspace. The layer's own workspace is another one then
 * than that of runs outside graphs. Memory of the caller's, bound or given as
 * `workspace`, outlives the graph. The caller orders replays of graphs that
 * share a workspace. */
MOERT_API moert_status *moert_layer_run(moert_layer *layer, int64_t tokens,
                                        void *stream, void *workspace,
                                        int64_t workspace_bytes);

/* Not 0: the latest run became part of a graph. */
MOERT_API int moert_layer_is_captured(const moert_layer *layer);

/* Returns when the runs of the layer are complete, but for replays of graphs.
 */
MOERT_API moert_status *moert_layer_synchronize(moert_layer *layer);
/* The same for all that was given to `stream`, as moert_layer_run() takes it.
 * Of a layer of several ranks it ends with an error where one is gone, which
 * moert_device_synchronize() never does. */
MOERT_API moert_status *moert_layer_synchronize_stream(moert_layer *layer,
                                                       void *stream);

#ifdef __cplusplus
}
#endif

#endif /* MOERT_MOERT_H */
