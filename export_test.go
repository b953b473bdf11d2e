package servo

// AllowLoopback lets http assets call this machine, where the endpoints of tests listen.
func (o *WorkerOptions) AllowLoopback() { o.local = true }
