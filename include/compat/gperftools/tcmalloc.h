/* SPDX-License-Identifier: MIT
 *
 * gperftools/tcmalloc.h - the malloc family under gperftools' names, served by tally.
 *
 * These functions are in libtally-gperftools.so: link with -ltally-gperftools -ltally, or preload
 * libtally-gperftools.so, which brings libtally.so.  What they allocate may be freed by their namesakes in
 * libc's family, and the other way round.
 */
#ifndef TALLY_COMPAT_GPERFTOOLS_TCMALLOC_H
#define TALLY_COMPAT_GPERFTOOLS_TCMALLOC_H

#include <malloc.h>
#include <stddef.h>
#ifdef __cplusplus
#include <new>
#endif

/* The version of gperftools whose interface this is. */
#define TC_VERSION_MAJOR 2
#define TC_VERSION_MINOR 10
#define TC_VERSION_PATCH ""
#define TC_VERSION_STRING "gperftools 2.10 (tally)"

#if defined(__cplusplus) && __cplusplus >= 201103L
#define TALLY_TC_NOTHROW noexcept
#elif defined(__cplusplus)
#define TALLY_TC_NOTHROW throw()
#else
#define TALLY_TC_NOTHROW __attribute__((__nothrow__))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* TC_VERSION_STRING, and its parts where the pointers are not NULL. */
const char *tc_version(int *major, int *minor, const char **patch) TALLY_TC_NOTHROW;

/* Each as the function of libc's family that it is called after. */
void *tc_malloc(size_t size) TALLY_TC_NOTHROW;
void tc_free(void *pointer) TALLY_TC_NOTHROW;
void *tc_calloc(size_t count, size_t size) TALLY_TC_NOTHROW;
void *tc_realloc(void *pointer, size_t size) TALLY_TC_NOTHROW;
void tc_cfree(void *pointer) TALLY_TC_NOTHROW;
void *tc_memalign(size_t alignment, size_t size) TALLY_TC_NOTHROW;
int tc_posix_memalign(void **result, size_t alignment, size_t size) TALLY_TC_NOTHROW;
void *tc_valloc(size_t size) TALLY_TC_NOTHROW;
void *tc_pvalloc(size_t size) TALLY_TC_NOTHROW;
void tc_free_sized(void *pointer, size_t size) TALLY_TC_NOTHROW;
void tc_free_aligned_sized(void *pointer, size_t alignment, size_t size) TALLY_TC_NOTHROW;

/* malloc, whatever tc_set_new_mode has said. */
void *tc_malloc_skip_new_handler(size_t size) TALLY_TC_NOTHROW;

/* Usable bytes of an object; 0 for NULL. */
size_t tc_malloc_size(void *pointer) TALLY_TC_NOTHROW;

/* MallocExtension_GetStats to standard error.  1, for there are no such knobs.  Of the last two, arena,
 * fsmblks, fordblks and uordblks are filled. */
void tc_malloc_stats(void) TALLY_TC_NOTHROW;
int tc_mallopt(int command, int value) TALLY_TC_NOTHROW;
struct mallinfo tc_mallinfo(void) TALLY_TC_NOTHROW;
struct mallinfo2 tc_mallinfo2(void) TALLY_TC_NOTHROW;

#ifdef __cplusplus
/* 1: the C functions above call the new-handler where there is no memory; 0 as at first.  Returns what it
 * was.  malloc itself is not concerned. */
int tc_set_new_mode(int flag) TALLY_TC_NOTHROW;
int tc_query_new_mode() TALLY_TC_NOTHROW;

/* The operators of C++. */
void *tc_new(size_t size);
void *tc_newarray(size_t size);
void *tc_new_nothrow(size_t size, const std::nothrow_t &) TALLY_TC_NOTHROW;
void *tc_newarray_nothrow(size_t size, const std::nothrow_t &) TALLY_TC_NOTHROW;
void tc_delete(void *pointer) TALLY_TC_NOTHROW;
void tc_deletearray(void *pointer) TALLY_TC_NOTHROW;
void tc_delete_sized(void *pointer, size_t size) TALLY_TC_NOTHROW;
void tc_deletearray_sized(void *pointer, size_t size) TALLY_TC_NOTHROW;
void tc_delete_nothrow(void *pointer, const std::nothrow_t &) TALLY_TC_NOTHROW;
void tc_deletearray_nothrow(void *pointer, const std::nothrow_t &) TALLY_TC_NOTHROW;
#if __cplusplus >= 201703L
void *tc_new_aligned(size_t size, std::align_val_t alignment);
void *tc_newarray_aligned(size_t size, std::align_val_t alignment);
void *tc_new_aligned_nothrow(size_t size, std::align_val_t alignment,
                             const std::nothrow_t &) TALLY_TC_NOTHROW;
void *tc_newarray_aligned_nothrow(size_t size, std::align_val_t alignment,
                                  const std::nothrow_t &) TALLY_TC_NOTHROW;
void tc_delete_aligned(void *pointer, std::align_val_t alignment) TALLY_TC_NOTHROW;
void tc_deletearray_aligned(void *pointer, std::align_val_t alignment) TALLY_TC_NOTHROW;
void tc_delete_sized_aligned(void *pointer, size_t size,
                             std::align_val_t alignment) TALLY_TC_NOTHROW;
void tc_deletearray_sized_aligned(void *pointer, size_t size,
                                  std::align_val_t alignment) TALLY_TC_NOTHROW;
void tc_delete_aligned_nothrow(void *pointer, std::align_val_t alignment,
                               const std::nothrow_t &) TALLY_TC_NOTHROW;
void tc_deletearray_aligned_nothrow(void *pointer, std::align_val_t alignment,
                                    const std::nothrow_t &) TALLY_TC_NOTHROW;
#endif
#endif

#ifdef __cplusplus
}
#endif

#undef TALLY_TC_NOTHROW

#endif
