package simulate

// Tenants share worker capacity as admission shares it, by the duration of runs, with equal weights:
// the tenant that was served least is next, and a tenant that did not wait has no credit.

// offer adds a tenant to the queue for capacity, if it has a run to start. With unlimited capacity
// there is no queue.
func (s *state) offer(index int32) {
	t := &s.tenants[index]
	if t.inTurn || t.waiting == 0 || !t.mayStart() {
		return
	}
	if s.in.Slots == 0 {
		for t.waiting > 0 && t.mayStart() {
			s.serve(t)
		}
		return
	}
	t.inTurn = true
	t.served = max(t.served, s.served)
	s.turns.push(moment{at: t.served, config: index})
}

// serve starts the tenant's next run.
func (s *state) serve(t *tenant) {
	p := t.pending.pop()
	for p.life != s.configs[p.config].life {
		p = t.pending.pop() // it was cancelled while it waited
	}
	t.waiting--
	s.queued--
	s.start(&s.configs[p.config], t, p)
}

// dispatch distributes the free capacity.
func (s *state) dispatch() {
	for len(s.turns) > 0 && s.running < s.in.Slots {
		turn := s.turns.pop()
		t := &s.tenants[turn.config]
		if t.waiting == 0 || !t.mayStart() {
			t.inTurn = false
			continue
		}
		s.served = max(s.served, t.served)
		s.serve(t)
		s.turns.push(moment{at: t.served, config: turn.config})
	}
}
