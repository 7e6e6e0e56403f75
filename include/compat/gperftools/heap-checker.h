/* SPDX-License-Identifier: MIT
 *
 * gperftools/heap-checker.h - the heap leak checker of gperftools 2.10 for C++, served by tally.
 *
 * Checks are made with HEAPCHECK set, or the option leak_check; otherwise every check succeeds at once.
 * docs/manual/leaks.md tells what a leak is and how it is reported.  C programs have tally_leak_check and
 * its kin in <tally/tally.h>.
 */
#ifndef TALLY_COMPAT_GPERFTOOLS_HEAP_CHECKER_H
#define TALLY_COMPAT_GPERFTOOLS_HEAP_CHECKER_H

#ifdef __cplusplus

#include <stdint.h>
#include <sys/types.h>

class HeapLeakChecker {
  public:
    /* Is anything checked in this process? */
    static bool IsActive();

    /* The check of the whole program, at exit: NULL if there is none, made now, or not made at all. */
    static HeapLeakChecker *GlobalChecker();
    static bool NoGlobalLeaks();
    static void CancelGlobalCheck();

    /* A check of what is allocated from here on.  It has to be asked before it ends. */
    explicit HeapLeakChecker(const char *name);
    ~HeapLeakChecker();

    /* True if nothing that was allocated since is lost.  All of these are the same. */
    bool NoLeaks() {
        return DoNoLeaks(DO_NOT_SYMBOLIZE);
    }
    bool QuickNoLeaks() {
        return NoLeaks();
    }
    bool BriefNoLeaks() {
        return NoLeaks();
    }
    bool SameHeap() {
        return NoLeaks();
    }
    bool QuickSameHeap() {
        return NoLeaks();
    }
    bool BriefSameHeap() {
        return NoLeaks();
    }

    /* What the last check has found. */
    ssize_t BytesLeaked() const;
    ssize_t ObjectsLeaked() const;

    /* What the thread allocates while one of these exists is no leak, and neither is what only that
     * leads to. */
    class Disabler {
      public:
        Disabler();
        ~Disabler();

      private:
        Disabler(const Disabler &);
        void operator=(const Disabler &);
    };

    /* The same for one object, to which the pointer may point anywhere; and no longer. */
    template <typename T> static T *IgnoreObject(T *pointer) {
        DoIgnoreObject(static_cast<const void *>(const_cast<const T *>(pointer)));
        return pointer;
    }
    static void UnIgnoreObject(const void *pointer);

  private:
    enum ShouldSymbolize { SYMBOLIZE, DO_NOT_SYMBOLIZE };
    bool DoNoLeaks(ShouldSymbolize should_symbolize);
    static void DoIgnoreObject(const void *pointer);

    /* Size and meaning are those of gperftools, for objects that cross between programs compiled with
     * either header. */
    void *lock_;
    const char *name_;
    void *start_snapshot_;
    bool has_checked_;
    ssize_t inuse_bytes_increase_;
    ssize_t inuse_allocs_increase_;
    bool keep_profiles_;

    HeapLeakChecker(const HeapLeakChecker &);
    void operator=(const HeapLeakChecker &);
};

/* A pointer that the checker cannot see: what only it leads to is a leak. */
template <class T> class HiddenPointer {
  public:
    explicit HiddenPointer(T *pointer) : masked_(reinterpret_cast<uintptr_t>(pointer) ^ kHideMask) {
    }
    T *get() const {
        return reinterpret_cast<T *>(masked_ ^ kHideMask);
    }

  private:
    static const uintptr_t kHideMask = static_cast<uintptr_t>(0xF03A5F7BF03A5F7Bull);
    uintptr_t masked_;
};

/* A function that is called before the check at exit. */
class HeapCleaner {
  public:
    typedef void (*void_function)(void);
    HeapCleaner(void_function cleanup);
    static void RunHeapCleanups();
};

#define REGISTER_HEAPCHECK_CLEANUP(name, body)                                                     \
    namespace {                                                                                    \
    void heapcheck_cleanup_##name() {                                                              \
        body;                                                                                      \
    }                                                                                              \
    HeapCleaner heapcheck_cleaner_##name(&heapcheck_cleanup_##name);                               \
    }

#endif

#endif
