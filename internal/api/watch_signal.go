package api

import "go.arco.dev/servo/internal/id"

// runChanged is signalled at the next change of a run.
func (s *Server) runChanged(id.Run) (changed <-chan struct{}, stop func()) { return nil, func() {} }
