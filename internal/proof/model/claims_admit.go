package model

// Claims that admit, of docs/adr/0037-claims-that-admit.md: a claim that finds too few queued tasks tries
// to hold the duty, and leases ready tasks within the quota.

// admittingClaim lists the statements with which a claim admits ready tasks. It never waits for the
// duty's row. The statements that follow have snapshots of their own.
func (w *World) admittingClaim() []stmt {
	if !w.ClaimsAdmit {
		return nil
	}
	r := w.Rules
	duty := stmt{on: onDuty, mode: Update, skip: true, pick: one, when: wantsReady}
	room := stmt{on: onRoom, pick: one, when: claimAdmits}
	ready := stmt{on: onQueue, queue: Ready, mode: lockIf(r.MoverLocksRow), skip: true, pick: readyForClaim, when: claimAdmits}
	if !r.ClaimReadsAfter {
		duty.pick = oneAndRoom
		room.when = never
	}
	if !r.ClaimHoldsDuty {
		duty.when = never
	}
	return []stmt{duty, room, ready}
}

// wantsReady reports whether a claim may get more tasks than it found in the queue, and some are ready.
func wantsReady(w *World, s *State, tx *Tx) bool {
	return tx.Tasks == 0 && tx.Got[Pool].size() < w.wanted(tx) && s.DB.rows(Ready) != 0
}

// claimAdmits reports whether a claim may lease ready tasks.
func claimAdmits(w *World, s *State, tx *Tx) bool {
	return wantsReady(w, s, tx) && (tx.Locks.Duty != Unlocked || !w.Rules.ClaimHoldsDuty)
}

// wanted is how many tasks a claim wants.
func (w *World) wanted(tx *Tx) int8 {
	if a := &w.Actors[tx.Actor]; a.Role == Worker {
		return a.Max
	}
	return 1 // an echo
}

// readClaimRoom counts how many ready tasks a claim may lease.
func (w *World) readClaimRoom(s *State, tx *Tx) {
	tx.Limit = w.wanted(tx) - tx.Got[Pool].size()
	if w.Quota > 0 {
		tx.Limit = min(tx.Limit, w.Quota-s.DB.rows(Leases).size()-s.DB.rows(Pool).size())
	}
}

func readyForClaim(_ *World, s *State, tx *Tx) Set {
	if tx.Limit <= 0 {
		return 0
	}
	return s.DB.rows(Ready)
}

// admitters are the roles that a ready task wakes.
func (w *World) admitters() Set {
	if w.ClaimsAdmit {
		return sleepers
	}
	return admissions
}
