package verify

import (
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
)

// Kind is the kind of a divergence between a row and the log.
type Kind string

// The kinds of divergence.
const (
	// Differs: a column has another value than the fold of the events.
	Differs Kind = "differs"
	// Missing: a row does not exist.
	Missing Kind = "missing"
	// Surplus: a row exists that no event explains.
	Surplus Kind = "surplus"
	// ForeignTenant: a row of one tenant belongs to a run of another.
	ForeignTenant Kind = "foreign tenant"
	// Stream: the versions or positions of a stream are not unique and gapless.
	Stream Kind = "stream"
	// Undecidable: an event cannot be read, so its stream cannot be compared.
	Undecidable Kind = "undecidable"
	// History: the events contain a transition that the state machines do not allow.
	History Kind = "history"
	// Invariant: rows contradict each other.
	Invariant Kind = "invariant"
)

// Divergence is one difference. Subject is its task, run or entity.
type Divergence struct {
	Kind    Kind      `json:"kind"`
	Table   string    `json:"table"`
	Column  string    `json:"column,omitempty"`
	Tenant  id.Tenant `json:"tenant,omitzero"`
	Run     id.Run    `json:"run,omitzero"`
	Subject uuid.UUID `json:"subject,omitzero"`
	Name    string    `json:"name,omitempty"` // of a subject without a tenant, such as pool/default
	Want    string    `json:"want"`
	Got     string    `json:"got"`
}

func (d Divergence) String() string {
	var text strings.Builder
	text.WriteString(string(d.Kind) + " " + d.Table)
	if d.Column != "" {
		text.WriteString("." + d.Column)
	}
	if d.Tenant.UUID != uuid.Nil {
		text.WriteString(" tenant " + d.Tenant.String())
	}
	if d.Run.UUID != uuid.Nil {
		text.WriteString(" run " + d.Run.String())
	}
	if d.Subject != uuid.Nil && d.Subject != d.Run.UUID && d.Subject != d.Tenant.UUID {
		text.WriteString(" of " + d.Subject.String())
	}
	if d.Name != "" {
		text.WriteString(" of " + d.Name)
	}
	fmt.Fprintf(&text, ": want %s, got %s", orNothing(d.Want), orNothing(d.Got))
	return text.String()
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// Report counts the compared rows and events and lists the divergences. Found counts every
// divergence; Divergences holds the first of them.
type Report struct {
	Tenants     int          `json:"tenants"`
	Runs        int          `json:"runs"`
	Tasks       int          `json:"tasks"`
	Events      int          `json:"events"`
	Chunks      int          `json:"chunks"`
	Found       int          `json:"found"`
	Divergences []Divergence `json:"divergences"`

	keep int
}

// Clean reports whether there is no divergence.
func (r *Report) Clean() bool { return r.Found == 0 }

func (r *Report) add(d Divergence) {
	r.Found++
	if len(r.Divergences) < r.keep {
		d.Want, d.Got = short(d.Want), short(d.Got)
		r.Divergences = append(r.Divergences, d)
	}
}

// maxText bounds the values that a divergence quotes: a result may have 64 KB.
const maxText = 200

func short(text string) string {
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:maxText], ""), len(text))
}

// Text writes the report for people.
func (r *Report) Text(w io.Writer) {
	for _, d := range r.Divergences {
		fmt.Fprintln(w, d)
	}
	if more := r.Found - len(r.Divergences); more > 0 {
		fmt.Fprintf(w, "… and %d more\n", more)
	}
	fmt.Fprintf(w, "%s, %s, %s, %s: %s\n",
		count(r.Tenants, "tenant"), count(r.Runs, "run"), count(r.Tasks, "task"), count(r.Events, "event"), count(r.Found, "divergence"))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
