/* SPDX-License-Identifier: MIT
 *
 * gperftools/malloc_extension_c.h - questions about the heap under gperftools' names, answered by tally.
 *
 * The answers are tally's own figures.  What gperftools counts and tally has no notion of is unknown here:
 * the function returns 0 and writes nothing.  docs/manual/gperftools.md lists the properties.
 */
#ifndef TALLY_COMPAT_GPERFTOOLS_MALLOC_EXTENSION_C_H
#define TALLY_COMPAT_GPERFTOOLS_MALLOC_EXTENSION_C_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define kMallocExtensionHistogramSize 64

/* 1.  There is nothing to be found: every free is checked when it happens. */
int MallocExtension_VerifyAllMemory(void);

/* 1 if this is the start of a live object, or NULL.  All three ask the same. */
int MallocExtension_VerifyNewMemory(const void *pointer);
int MallocExtension_VerifyArrayNewMemory(const void *pointer);
int MallocExtension_VerifyMallocMemory(const void *pointer);

/* Live objects: how many, their usable bytes, and how many need so many bits for their size.  1. */
int MallocExtension_MallocMemoryStats(int *blocks, size_t *total,
                                      int histogram[kMallocExtensionHistogramSize]);

/* The statistics as a text, with a line for each size if there is room for 10,000 bytes; cut where it does
 * not fit.  Lines that begin with "MALLOC:" are gperftools'. */
void MallocExtension_GetStats(char *buffer, int buffer_length);

/* 1, or 0 if there is no such property, or none that can be set so. */
int MallocExtension_GetNumericProperty(const char *property, size_t *value);
int MallocExtension_SetNumericProperty(const char *property, size_t value);

/* The thread will do nothing for a while: gives back what it keeps.  The second has nothing to do. */
void MallocExtension_MarkThreadIdle(void);
void MallocExtension_MarkThreadBusy(void);
void MallocExtension_MarkThreadTemporarilyIdle(void);

/* Gives free memory back to the kernel: at least so many bytes, if there are, or all.  What went beyond is
 * counted towards the next calls. */
void MallocExtension_ReleaseToSystem(size_t num_bytes);
void MallocExtension_ReleaseFreeMemory(void);

/* How fast free memory goes back by itself: 1 within a second, 10 within a tenth, 0 never. */
void MallocExtension_SetMemoryReleaseRate(double rate);
double MallocExtension_GetMemoryReleaseRate(void);

/* Usable bytes that a request gets, and that an object has; a pointer that is none ends the process. */
size_t MallocExtension_GetEstimatedAllocatedSize(size_t size);
size_t MallocExtension_GetAllocatedSize(const void *pointer);

/* Bytes of free objects that the calling thread keeps. */
size_t MallocExtension_GetThreadCacheSize(void);

/* Is this an address of tally's heap? */
typedef enum {
    MallocExtension_kUnknownOwnership = 0,
    MallocExtension_kOwned,
    MallocExtension_kNotOwned
} MallocExtension_Ownership;
MallocExtension_Ownership MallocExtension_GetOwnership(const void *pointer);

#ifdef __cplusplus
}
#endif

#endif
