package event

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

// Position is a place in the feed of all events: transactions in the order of their ids, and
// events inside of one in the order of their positions. The epoch tells places apart that a
// cluster has given out twice, since it was put back to an earlier state. Zero is before the
// first event.
type Position struct {
	Epoch    int32
	Tx       int64
	Position int64
}

// String is the position as people and programs are given it. To them it means nothing but a
// place: it has no order that they may rely on.
func (p Position) String() string { return fmt.Sprintf("%d.%d.%d", p.Epoch, p.Tx, p.Position) }

// Compare orders positions of one epoch.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Tx, q.Tx), cmp.Compare(p.Position, q.Position))
}

// ParsePosition reads what String gave.
func ParsePosition(field, text string) (Position, error) {
	parts := strings.Split(text, ".")
	var p Position
	if len(parts) == 3 {
		epoch, _ := strconv.ParseInt(parts[0], 10, 32)
		p.Epoch = int32(epoch)
		p.Tx, _ = strconv.ParseInt(parts[1], 10, 64)
		p.Position, _ = strconv.ParseInt(parts[2], 10, 64)
	}
	if p.String() != text || p.Epoch < 1 || p.Tx < 0 || p.Position < 0 {
		return Position{}, fault.New(fault.InvalidArgument, fmt.Sprintf("%.100q is not a place in the feed", text), fault.Field(field),
			fault.Remedy("use the id of an event that was delivered, the position of a subscription, now or beginning"))
	}
	return p, nil
}

// Epoch is a part of the feed.
type Epoch struct {
	Number  int32
	From    int64 // its first transaction
	Cluster string
}

// Epochs are all of them, the first first.
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

// Current translates a place that a reader knows to the feed as it is now. Whoever had read
// further than a cluster was put back to goes on where the next epoch begins: what it has read
// there is gone, and what stands there now it has not seen.
func (e Epochs) Current(p Position) Position {
	for _, epoch := range e {
		if epoch.Number > p.Epoch && p.Tx >= epoch.From {
			p = Position{Tx: epoch.From}
		}
	}
	p.Epoch = e.Of(p.Tx)
	return p
}
