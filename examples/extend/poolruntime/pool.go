package poolruntime

import "sync"

// pool runs tasks on a fixed number of goroutines. Its queue has no limit, because a
// task may add others: with a limit, workers could wait for each other.
type pool struct {
	workers sync.WaitGroup

	mu     sync.Mutex
	added  *sync.Cond // a task was added, or the pool was closed
	queue  []func()
	closed bool
}

func newPool(workers int) *pool {
	p := &pool{}
	p.added = sync.NewCond(&p.mu)
	for range workers {
		p.workers.Go(p.work)
	}
	return p
}

// add puts a task at the end of the queue.
func (p *pool) add(task func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, task)
	p.added.Signal()
}

// close runs the tasks that are left and ends the workers.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.added.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
}

func (p *pool) work() {
	for task := p.next(); task != nil; task = p.next() {
		task()
	}
}

// next waits for a task. It returns nil when the pool is closed and the queue empty.
func (p *pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 {
		if p.closed {
			return nil
		}
		p.added.Wait()
	}
	task := p.queue[0]
	p.queue = p.queue[1:]
	return task
}
