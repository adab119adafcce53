package watch

import (
	"errors"
	"fmt"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// inotifySource is the kernel's inotify(7) through fsnotify. It only renames what fsnotify says; the reader of its
// channels must never wait for a call of Add or Remove, because fsnotify sends while it holds the lock that those need.
type inotifySource struct {
	watcher *fsnotify.Watcher
	events  chan Event
	errors  chan error
	done    chan struct{}
	ended   sync.WaitGroup
}

// openInotify makes an inotify instance. EMFILE means fs.inotify.max_user_instances.
func openInotify() (EventSource, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	s := &inotifySource{watcher: watcher, events: make(chan Event), errors: make(chan error), done: make(chan struct{})}
	s.ended.Go(s.translate)
	return s, nil
}

func (s *inotifySource) translate() {
	defer close(s.errors)
	defer close(s.events)
	errs := s.watcher.Errors
	for {
		select {
		case event, ok := <-s.watcher.Events:
			if !ok {
				return
			}
			select {
			case s.events <- Event{Path: event.Name}:
			case <-s.done:
				return
			}
		case err, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				err = fmt.Errorf("%w: %w", ErrOverflow, err)
			}
			select {
			case s.errors <- err:
			case <-s.done:
				return
			}
		}
	}
}

func (s *inotifySource) Add(dir string) error { return s.watcher.Add(dir) }

// Remove ends a watch. In fsnotify 1.10.1 a path can be left behind without its watch: when Add is called on a path that
// is known, just after its directory was exchanged for another one that is watched as well. Remove then cleans up and
// panics on the nil watch, with its lock released. What is left is what was wanted, so the panic is an error like others.
func (s *inotifySource) Remove(dir string) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("remove watch of %s: %v", dir, cause)
		}
	}()
	if err := s.watcher.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
		return err
	}
	return nil
}

func (s *inotifySource) Events() <-chan Event { return s.events }

func (s *inotifySource) Errors() <-chan error { return s.errors }

func (s *inotifySource) Close() error {
	close(s.done)
	err := s.watcher.Close()
	s.ended.Wait()
	return err
}
