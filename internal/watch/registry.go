package watch

import (
	"io/fs"
	"sync"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// inode identifies a directory while it exists. Numbers are used again by the kernel, so equal ones prove nothing about
// another moment.
type inode struct{ device, number uint64 }

func inodeOf(info fs.FileInfo) inode {
	id, _, ok := durable.IdentityOf(info)
	if !ok {
		return inode{}
	}
	return inode{device: id.Device, number: id.Inode}
}

// registry is shared by the loops of all roots. It knows under which path each directory is watched: the kernel counts
// watches by inode, so that a directory that was renamed must lose its old watch before it gets a new one, or its events
// come under the old name.
type registry struct {
	mu     sync.Mutex
	source EventSource // nil: there are no events
	limit  int
	paths  map[inode]string
	inodes map[string]inode
}

func newRegistry() *registry {
	return &registry{limit: maxWatches, paths: map[inode]string{}, inodes: map[string]inode{}}
}

// use changes the source; nil takes it away. Watches of the former one are not carried over: every scan adds its own.
func (r *registry) use(source EventSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = source
}

// holder returns the path under which a directory is known; empty when it is not.
func (r *registry) holder(id inode) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paths[id]
}

// add records a directory's path and has it watched. It is called at every scan, which also mends a watch that the
// kernel dropped without telling. Errors: errNoSource, errWatchLimit, those of EventSource.Add.
func (r *registry) add(path string, id inode) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if former, known := r.inodes[path]; known && former != id {
		r.drop(path)
	}
	if _, known := r.inodes[path]; !known && len(r.inodes) >= r.limit {
		return errWatchLimit
	}
	r.paths[id], r.inodes[path] = path, id
	if r.source == nil {
		return errNoSource
	}
	return r.source.Add(path)
}

// release forgets a path that does not lead to its directory any more.
func (r *registry) release(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(path)
}

func (r *registry) drop(path string) {
	id, known := r.inodes[path]
	if !known {
		return
	}
	delete(r.inodes, path)
	if r.paths[id] == path {
		delete(r.paths, id)
	}
	if r.source != nil {
		// An error says that the watch was dropped already, by the kernel (EINVAL) or by its source: what is wanted.
		_ = r.source.Remove(path)
	}
}
