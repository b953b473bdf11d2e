package event

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

// Position is a place in the feed of all events: transactions in the order of their ids, rows of one
// transaction in the order of their positions, and events of one row by ordinal. The epoch distinguishes places that a cluster
// has used twice, because it was restored to an earlier state. Zero is before the first event.
type Position struct {
	Epoch    int32
	Tx       int64
	Position int64
	Ordinal  int32
}

// String formats the position for clients. To them it is opaque: they may not rely on its order.
func (p Position) String() string {
	return fmt.Sprintf("%d.%d.%d.%d", p.Epoch, p.Tx, p.Position, p.Ordinal)
}

// Compare orders positions of one epoch.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Tx, q.Tx), cmp.Compare(p.Position, q.Position), cmp.Compare(p.Ordinal, q.Ordinal))
}

// ParsePosition parses a position that String formatted.
func ParsePosition(field, text string) (Position, error) {
	parts := strings.Split(text, ".")
	var p Position
	if len(parts) == 4 {
		epoch, _ := strconv.ParseInt(parts[0], 10, 32)
		p.Epoch = int32(epoch)
		p.Tx, _ = strconv.ParseInt(parts[1], 10, 64)
		p.Position, _ = strconv.ParseInt(parts[2], 10, 64)
		ordinal, _ := strconv.ParseInt(parts[3], 10, 32)
		p.Ordinal = int32(ordinal)
	}
	if p.String() != text || p.Epoch < 1 || p.Tx < 0 || p.Position < 0 || p.Ordinal < 0 {
		return Position{}, fault.Invalid(field, fmt.Sprintf("%.100q is not a position in the feed", text), "use the id of an event that was delivered, the position of a subscription, now or beginning")
	}
	return p, nil
}

// Epoch is the part of the feed between two restores.
type Epoch struct {
	Number  int32
	From    int64 // its first transaction
	Cluster string
}

// Epochs are all epochs in order.
type Epochs []Epoch

// Of is the epoch that a transaction belongs to.
func (e Epochs) Of(tx int64) int32 {
	number := int32(1)
	for _, epoch := range e {
		if epoch.From <= tx {
			number = epoch.Number
		}
	}
	return number
}

// Current translates a reader's position to the current feed. A reader that was ahead of the state to
// which a cluster was restored continues at the beginning of the next epoch: the events that it has
// read there no longer exist, and it has not read their replacements.
func (e Epochs) Current(p Position) Position {
	for _, epoch := range e {
		if epoch.Number > p.Epoch && p.Tx >= epoch.From {
			p = Position{Tx: epoch.From}
		}
	}
	p.Epoch = e.Of(p.Tx)
	return p
}
