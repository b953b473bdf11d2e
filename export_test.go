package servo

// AllowLoopback lets http assets call this machine, where the endpoints of tests listen.
func (o *WorkerOptions) AllowLoopback() { o.local = true }

// Describe is what Main prints for servo worker check.
func Describe(w *Worker) any { return w.describe() }
