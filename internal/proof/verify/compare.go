package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// columns compares two rows of one table, column by column. The columns are the fields of
// the row's type, which is generated from the schema: a column that is added to a table is
// compared from that day on, and diverges until the fold knows it.
type columns[R any] struct {
	table string
	names []string
	skip  []bool
}

// difference is one column with a wrong value.
type difference struct {
	column, want, got string
}

func columnsOf[R any](table string) columns[R] {
	row := reflect.TypeFor[R]()
	c := columns[R]{table: table}
	for i := range row.NumField() {
		name := row.Field(i).Tag.Get("db")
		c.names = append(c.names, name)
		c.skip = append(c.skip, slices.Contains(Volatile(), table+"."+name))
	}
	return c
}

// diff returns the columns of got that differ from want.
func (c columns[R]) diff(want, got *R) []difference {
	var found []difference
	w, g := reflect.ValueOf(want).Elem(), reflect.ValueOf(got).Elem()
	for i, name := range c.names {
		if c.skip[i] {
			continue
		}
		// pointers to fields travel in an interface without an allocation
		wanted, gotten := w.Field(i).Addr().Interface(), g.Field(i).Addr().Interface()
		if !sameValue(wanted, gotten) {
			found = append(found, difference{name, textOf(w.Field(i)), textOf(g.Field(i))})
		}
	}
	return found
}

// sameValue compares the values of two pointers of one type.
func sameValue(want, got any) bool {
	switch w := want.(type) {
	case *time.Time:
		return sameTime(*w, *of(w, got))
	case **time.Time:
		g := *of(w, got)
		return (*w == nil) == (g == nil) && (g == nil || sameTime(**w, *g))
	case *json.RawMessage:
		return sameJSON(*w, *of(w, got))
	case *uuid.UUID:
		return *w == *of(w, got)
	case **uuid.UUID:
		return samePointer(*w, *of(w, got))
	case *string:
		return *w == *of(w, got)
	case **string:
		return samePointer(*w, *of(w, got))
	case *bool:
		return *w == *of(w, got)
	case *int16:
		return *w == *of(w, got)
	case **int16:
		return samePointer(*w, *of(w, got))
	case *int32:
		return *w == *of(w, got)
	case **int32:
		return samePointer(*w, *of(w, got))
	case *int64:
		return *w == *of(w, got)
	case **int64:
		return samePointer(*w, *of(w, got))
	}
	return reflect.DeepEqual(want, got)
}

// of asserts the type of value: both point at the same field of two rows.
func of[T any](_ *T, value any) *T { return value.(*T) }

func samePointer[T comparable](want, got *T) bool {
	return (want == nil) == (got == nil) && (want == nil || *want == *got)
}

// sameTime compares with PostgreSQL's precision: to the microsecond.
func sameTime(want, got time.Time) bool { return micros(want).Equal(micros(got)) }

func micros(t time.Time) time.Time { return t.Truncate(time.Microsecond) }

// sameJSON compares values, not their spelling. NULL is not the JSON null.
func sameJSON(want, got json.RawMessage) bool {
	if (want == nil) != (got == nil) {
		return false
	}
	if bytes.Equal(want, got) {
		return true
	}
	w, wantErr := tree(want)
	g, gotErr := tree(got)
	return wantErr == nil && gotErr == nil && sameTree(w, g)
}

func tree(data json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

func sameTree(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(w) != len(g) {
			return false
		}
		for key, value := range w {
			if other, there := g[key]; !there || !sameTree(value, other) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		return ok && slices.EqualFunc(w, g, sameTree)
	case json.Number:
		g, ok := got.(json.Number)
		return ok && sameNumber(w.String(), g.String())
	}
	return want == got
}

// sameNumber compares values, so that 1e2 equals 100: events contain numbers in Go's notation,
// columns in PostgreSQL's.
func sameNumber(want, got string) bool {
	if want == got {
		return true
	}
	w, wantErr := strconv.ParseFloat(want, 64)
	g, gotErr := strconv.ParseFloat(got, 64)
	return wantErr == nil && gotErr == nil && w == g
}

// textOf is a column's value for people; "" is NULL.
func textOf(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case time.Time:
		return value.UTC().Format(time.RFC3339Nano)
	case json.RawMessage:
		return string(value)
	case string:
		return strconv.Quote(value)
	default:
		return fmt.Sprint(value)
	}
}
