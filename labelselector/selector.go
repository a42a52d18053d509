package labelselector

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selector is a compiled label selector. It is immutable and safe for concurrent use. The zero value matches nothing.
// Selectors are not comparable; those with the same String match the same labels.
type Selector struct {
	_        [0]func() // lets the compiler refuse ==, which would panic
	compiled labels.Selector
	text     string
}

// Compile validates s and compiles it. As everywhere in Kubernetes, a nil selector matches nothing
// and an empty one everything. The error names each field that is at fault, as the API server would.
func Compile(s *metav1.LabelSelector) (Selector, error) {
	if errs := validation.ValidateLabelSelector(s, validation.LabelSelectorValidationOptions{}, nil); len(errs) > 0 {
		return Selector{}, fmt.Errorf("compiling label selector: %w", errs.ToAggregate())
	}
	compiled, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return Selector{}, fmt.Errorf("compiling label selector: %w", err)
	}
	return Selector{compiled: compiled, text: compiled.String()}, nil
}

// Matches reports whether the selector matches the labels; nil stands for none.
func (s Selector) Matches(l labels.Labels) bool {
	if l == nil {
		l = labels.Set(nil)
	}
	return s.compiled != nil && s.compiled.Matches(l)
}

// String returns the selector in the notation of kubectl's --selector flag: empty for one that matches everything. For
// one that matches nothing, which that notation does not know, it is "(nothing)".
func (s Selector) String() string {
	if s.text == "" && (s.compiled == nil || !s.compiled.Empty()) {
		return "(nothing)"
	}
	return s.text
}

// pair is one label: a key with its value, or with any value.
type pair struct {
	key, value string
	anyValue   bool
}

// alternatives returns, for each requirement that only certain labels can meet, those
// labels: a label set that the selector matches holds exactly one pair of each alternative.
// selectable is false if the selector matches nothing at all.
func (s Selector) alternatives() (alternatives [][]pair, selectable bool) {
	if s.compiled == nil {
		return nil, false
	}
	requirements, selectable := s.compiled.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			var pairs []pair
			for value := range r.Values() {
				pairs = append(pairs, pair{key: r.Key(), value: value})
			}
			alternatives = append(alternatives, pairs)
		case selection.Exists:
			alternatives = append(alternatives, []pair{{key: r.Key(), anyValue: true}})
		}
	}
	return alternatives, selectable
}
