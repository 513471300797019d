package batch

import "sync"

// Crew is a bounded number of threads that prepare rows.
type Crew[Job any] struct {
	jobs chan Job
	work []func(Job) // of each thread
	wait sync.WaitGroup
}

// NewCrew returns a crew with a thread for each work, which Start starts, and room
// for so many jobs that wait.
func NewCrew[Job any](room int, work []func(Job)) *Crew[Job] {
	return &Crew[Job]{jobs: make(chan Job, room), work: work}
}

// Size is how many threads there are.
//
//rt:noalloc
func (c *Crew[Job]) Size() int { return len(c.work) }

// Start starts the threads.
func (c *Crew[Job]) Start() {
	for _, work := range c.work {
		c.wait.Go(func() {
			for job := range c.jobs {
				work(job)
			}
		})
	}
}

// Do hands a job over. It does not block as long as no more jobs wait than there is
// room for.
//
//rt:noalloc
func (c *Crew[Job]) Do(job Job) { c.jobs <- job }

// Close ends the threads, once all jobs are done.
func (c *Crew[Job]) Close() {
	close(c.jobs)
	c.wait.Wait()
}
