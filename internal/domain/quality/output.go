package quality

import "slices"

// Output is the declared output of an asset. Each successful attempt writes one version of it.
type Output struct {
	Format Format   `json:"format"`
	Schema []Column `json:"schema,omitempty"` // in the order of the columns
	// Sensitive are columns whose values never appear in samples of check results.
	Sensitive []string `json:"sensitive,omitempty"`
	// Retain is how many versions are kept, the promoted one included.
	Retain int `json:"retain,omitempty"`
}

// DefaultRetain is how many versions of an output are kept if the asset does not declare it.
const DefaultRetain = 10

// Format is the file format of an output.
type Format string

// The formats.
const (
	Parquet Format = "parquet"
	CSV     Format = "csv"
	JSONL   Format = "jsonl"
	JSON    Format = "json"
	Files   Format = "files"
)

// Formats are all formats.
var Formats = []Format{Parquet, CSV, JSONL, JSON, Files}

// HasRows reports whether files of the format consist of rows with columns, so that checks can read
// them.
func (f Format) HasRows() bool { return f != Files }

// Column is one declared column of an output.
type Column struct {
	Name string     `json:"name"`
	Type ColumnType `json:"type"`
}

// ColumnType is the logical type of a column, the same for all formats.
type ColumnType string

// The types of columns.
const (
	String    ColumnType = "string"
	Integer   ColumnType = "integer"
	Number    ColumnType = "number"
	Decimal   ColumnType = "decimal"
	Boolean   ColumnType = "boolean"
	Date      ColumnType = "date"
	Timestamp ColumnType = "timestamp"
	Binary    ColumnType = "binary"
	Object    ColumnType = "object"
	Array     ColumnType = "array"
)

// ColumnTypes are all types of columns.
var ColumnTypes = []ColumnType{String, Integer, Number, Decimal, Boolean, Date, Timestamp, Binary, Object, Array}

// Declared is what an asset declares about its output, as workers receive it.
type Declared struct {
	Output *Output `json:"output,omitempty"`
	Checks []Check `json:"checks,omitempty"`
}

// IsSensitive reports whether values of a column are kept out of samples. A column inside a
// sensitive one ("address.city") is sensitive too.
func (o Output) IsSensitive(column string) bool {
	return slices.ContainsFunc(o.Sensitive, func(s string) bool {
		return column == s || len(column) > len(s) && column[:len(s)] == s && column[len(s)] == '.'
	})
}

// Normalise fills in defaults and sorts lists whose order has no meaning.
func (o *Output) Normalise() {
	if o.Retain == 0 {
		o.Retain = DefaultRetain
	}
	slices.Sort(o.Sensitive)
}
