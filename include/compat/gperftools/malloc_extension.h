/* SPDX-License-Identifier: MIT
 *
 * gperftools/malloc_extension.h - questions about the heap, as a class of gperftools 2.10, answered by tally.
 *
 * MallocExtension::instance() is tally's; the order of the virtual functions is gperftools'.  Those of the
 * C header, malloc_extension_c.h, do what is said there.
 */
#ifndef TALLY_COMPAT_GPERFTOOLS_MALLOC_EXTENSION_H
#define TALLY_COMPAT_GPERFTOOLS_MALLOC_EXTENSION_H

#ifdef __cplusplus

#include <stddef.h>
#include <stdint.h>
#include <string>
#include <vector>

static const int kMallocHistogramSize = 64;
typedef std::string MallocExtensionWriter;

namespace base {
/* Addresses of the heap.  tally does not say what of them is in use: the type is UNKNOWN. */
struct MallocRange {
    enum Type { INUSE, FREE, UNMAPPED, UNKNOWN };
    uintptr_t address;
    size_t length;
    Type type;
    double fraction;
};
} // namespace base

class SysAllocator;

class MallocExtension {
  public:
    static MallocExtension *instance();

    /* Without effect. */
    static void Initialize();
    static void Register(MallocExtension *implementation);

    virtual ~MallocExtension() = 0;
    virtual bool VerifyAllMemory() = 0;
    virtual bool VerifyNewMemory(const void *pointer) = 0;
    virtual bool VerifyArrayNewMemory(const void *pointer) = 0;
    virtual bool VerifyMallocMemory(const void *pointer) = 0;
    virtual bool MallocMemoryStats(int *blocks, size_t *total,
                                   int histogram[kMallocHistogramSize]) = 0;
    virtual void GetStats(char *buffer, int buffer_length) = 0;

    /* Appends the heap profile in gperftools' text, or lines with %warn where nothing is sampled. */
    virtual void GetHeapSample(MallocExtensionWriter *writer) = 0;

    /* Appends an empty one: growth has no stacks here. */
    virtual void GetHeapGrowthStacks(MallocExtensionWriter *writer) = 0;

    typedef void(RangeFunction)(void *argument, const base::MallocRange *range);
    virtual void Ranges(void *argument, RangeFunction function) = 0;
    virtual bool GetNumericProperty(const char *property, size_t *value) = 0;
    virtual bool SetNumericProperty(const char *property, size_t value) = 0;
    virtual void MarkThreadIdle() = 0;
    virtual void MarkThreadBusy() = 0;

    /* NULL, and without effect. */
    virtual SysAllocator *GetSystemAllocator() = 0;
    virtual void SetSystemAllocator(SysAllocator *allocator) = 0;

    virtual void ReleaseToSystem(size_t num_bytes) = 0;
    virtual void ReleaseFreeMemory() = 0;
    virtual void SetMemoryReleaseRate(double rate) = 0;
    virtual double GetMemoryReleaseRate() = 0;
    virtual size_t GetEstimatedAllocatedSize(size_t size) = 0;
    virtual size_t GetAllocatedSize(const void *pointer) = 0;

    enum Ownership { kUnknownOwnership = 0, kOwned, kNotOwned };
    virtual Ownership GetOwnership(const void *pointer) = 0;

    /* Empties the list. */
    struct FreeListInfo {
        size_t min_object_size;
        size_t max_object_size;
        size_t total_bytes_free;
        const char *type;
    };
    virtual void GetFreeListSizes(std::vector<FreeListInfo> *lists) = 0;

    /* NULL; the first also tells the mean bytes between samples. */
    virtual void **ReadStackTraces(int *sample_period) = 0;
    virtual void **ReadHeapGrowthStackTraces() = 0;

    virtual size_t GetThreadCacheSize() = 0;
    virtual void MarkThreadTemporarilyIdle() = 0;
};

#endif

#endif
