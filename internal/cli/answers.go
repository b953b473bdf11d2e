package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// show prints a message; its JSON is that of REST.
func (s *session) show(m proto.Message, table func(w io.Writer)) error {
	value, err := toJSON(m)
	if err != nil {
		return err
	}
	return render(s.cmd.OutOrStdout(), s.Form, value, table)
}

// showAll prints a list of messages, or for people the text none if it is empty.
func showAll[M proto.Message](s *session, list []M, none string, table func(w io.Writer)) error {
	values := make([]json.RawMessage, len(list))
	for i, m := range list {
		var err error
		if values[i], err = toJSON(m); err != nil {
			return err
		}
	}
	if len(list) == 0 && s.Form.forPeople() {
		s.report("%s", none)
		return nil
	}
	if err := render(s.cmd.OutOrStdout(), s.Form, values, table); err != nil {
		return err
	}
	if s.more {
		s.report("there are more than %d; --limit 0 lists all", len(list))
	}
	return nil
}

func toJSON(m proto.Message) (json.RawMessage, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write the answer as JSON: %w", err)
	}
	return text, nil
}

// first gathers at most limit items of a list; 0 is all of them.
func first[Item any](list iter.Seq2[Item, error], limit int) ([]Item, error) {
	var items []Item
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		if items = append(items, item); len(items) == limit {
			break
		}
	}
	return items, nil
}

// listed gathers the items of a list up to its limit, and records whether there are more.
func listed[Item any](s *session, list iter.Seq2[Item, error]) ([]Item, error) {
	if s.limit <= 0 {
		return first(list, 0)
	}
	items, err := first(list, s.limit+1)
	if s.more = len(items) > s.limit; s.more {
		items = items[:s.limit]
	}
	return items, err
}

// compact is a value on one line, "" for none.
func compact(m proto.Message) string {
	text, err := protojson.Marshal(m)
	if err != nil {
		return "?"
	}
	var plain any
	if json.Unmarshal(text, &plain) != nil || plain == nil {
		return ""
	}
	again, err := json.Marshal(plain) // protojson's spaces are not the same every time
	if err != nil {
		return "?"
	}
	return clean(string(again))
}

// structOf is a JSON object as a message.
func structOf(field string, object map[string]any) (*structpb.Struct, error) {
	out, err := structpb.NewStruct(object)
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, err.Error(), fault.Field(field), fault.Remedy("send valid UTF-8"))
	}
	return out, nil
}

// states reads the names of states, as they are or in lower case, several in one separated
// by commas.
func states[State ~int32](given []string, known map[string]int32) ([]State, error) {
	var out []State
	for _, list := range given {
		for name := range strings.SplitSeq(list, ",") {
			number, ok := known[strings.ToUpper(strings.TrimSpace(name))]
			if !ok || number == 0 {
				return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("unknown state %q%s", name, suggest.DidYouMean(strings.ToUpper(name), stateNames(known))),
					fault.Field("--state"), fault.Remedy("known states: "+strings.Join(stateNames(known), ", ")))
			}
			out = append(out, State(number))
		}
	}
	return out, nil
}

// stateNames are the names of states in the order of a life.
func stateNames(known map[string]int32) []string {
	const last = 20 // states are numbered from 1, with room
	var names []string
	for number := int32(1); number < last; number++ {
		for name, n := range known {
			if n == number {
				names = append(names, name)
			}
		}
	}
	return names
}
