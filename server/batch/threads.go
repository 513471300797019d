package batch

import "sync"

// Threads are a fixed number of threads that prepare rows. In a server they decode pictures (rows.go of package
// server).
type Threads[Job any] struct {
	jobs chan Job
	work []func(Job) // the function that each thread calls with a job
	wait sync.WaitGroup
}

// NewThreads returns threads, one for each element of work, which Start starts. The parameter room is the number of
// jobs that may wait for a thread.
func NewThreads[Job any](room int, work []func(Job)) *Threads[Job] {
	return &Threads[Job]{jobs: make(chan Job, room), work: work}
}

// Start starts the threads.
func (c *Threads[Job]) Start() {
	for _, work := range c.work {
		c.wait.Go(func() {
			for job := range c.jobs {
				work(job)
			}
		})
	}
}

// Do gives the threads a job. It does not block while there is room for waiting jobs.
//
//rt:noalloc
func (c *Threads[Job]) Do(job Job) { c.jobs <- job }

// Close ends the threads after they have done all jobs.
func (c *Threads[Job]) Close() {
	close(c.jobs)
	c.wait.Wait()
}
