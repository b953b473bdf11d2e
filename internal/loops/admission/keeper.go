package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.arco.dev/servo/internal/store"
)

// Times of the duty: a crashed holder is replaced within takeover + renewal.
const (
	takeover = 2 * time.Second
	renewal  = 500 * time.Millisecond
)

// keeper takes a duty and renews it in a loop of its own. Work under the duty may take longer than the duty
// lasts: if renewal waited for its end, servers would take the duty from each other and no work would finish.
type keeper struct {
	store        *store.Store
	name, holder string
	gained       func() // called when the duty was taken

	mu   sync.Mutex
	duty store.Duty // zero while another server holds it
}

// held is the duty as it was last taken or renewed. Each transaction under it checks that it is still held.
func (k *keeper) held() store.Duty {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.duty
}

// lost records that work under a duty was refused.
func (k *keeper) lost(duty store.Duty) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.duty == duty {
		k.duty = store.Duty{}
	}
}

func (k *keeper) runOnce(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeover)
	defer cancel()
	duty, err := k.store.TakeDuty(ctx, k.name, k.holder, takeover)
	if err != nil && !errors.Is(err, store.ErrDutyLost) {
		return false, err // the duty may still be held
	}
	if err != nil {
		duty = store.Duty{}
	}
	k.mu.Lock()
	gained := duty.Epoch != 0 && duty != k.duty
	k.duty = duty
	k.mu.Unlock()
	if gained {
		k.gained()
	}
	return false, nil
}
