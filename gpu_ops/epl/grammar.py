"""What statements look like: the grammar from which Lark makes the parser's tables.

A word in quotes is a word of the language; whether a word in a text is meant so, or is a name, `lexer.py` decides by
what may stand there. Names in capitals are tokens that keep their text (`lexer.TOKENS`).
"""

from __future__ import annotations

GRAMMAR = r"""
%declare NAME NUMBER STRING PARAMETER UNIT LITERAL SELECTOR DIRECTION LIKE NOT QUANTIFIER RETAIN SIDE RATE
%declare STAR PLUS MINUS DIVIDE EQUAL UNEQUAL LESS GREATER BITS JOINED LAMBDA VIEWDOT NEXTCONTEXT ANDTERMINATED
%declare LASTING SCHEMAOPTION

ARROW: "=>"
FOLLOWS: "->"
ATMOST: "-["

start: statement (";" statement?)*
statement: _prefix* in_context body
_prefix: annotation | declaration
in_context: ("context" NAME)?
?body: query | on_query | on_split | on_delete | on_update | on_set | on_merge | update
     | create_schema | create_window | create_table | create_variable | create_index | create_expression
     | create_context

annotation: "@" dotted | "@" dotted "(" ")" | "@" dotted "(" setting ("," setting)* ")"
setting: NAME EQUAL _setting_value -> named_setting
       | _setting_value
_setting_value: annotation | constant | setting_name | setting_list
setting_name: dotted
setting_list: "{" "}" | "{" _setting_value ("," _setting_value)* "}"
?constant: NUMBER -> number | MINUS NUMBER -> negative_number | STRING -> string | LITERAL -> constant

declaration: "expression" NAME "{" (expression | lambda_function) "}"
           | "expression" NAME "alias" "for" "{" expression "}"    -> alias_declaration

// Queries

query: head "from" sources recognize where groups having output order limit delivery
head: into_table insert "select" deleting selector distinct item ("," item)*
into_table: ("into" "table" NAME)?
insert: ("insert" selector "into" NAME names)?
names: ("(" NAME ("," NAME)* ")")? | "(" ")"
selector: SELECTOR?
deleting: "and"? "delete" -> yes | -> no
distinct: "distinct" -> yes | -> no
item: (STAR | expression) annotation* alias
alias: ("as"? NAME)?

?sources: stream -> one_stream | stream ("," stream)+ -> comma_join | stream join+ -> keyword_join
join: "inner"? "join" stream on -> inner_join
    | SIDE "outer"? "join" stream on
on: ("on" expression)?
stream: _source view* alias stream_option*
_source: events | pattern_source
events: dotted filters
filters: ("(" (expression ("," expression)*)? ")")?
pattern_source: "pattern" annotation* "[" pattern "]"
stream_option: "unidirectional" | RETAIN
view: "#" NAME (":" NAME)? view_arguments | VIEWDOT NAME ":" NAME view_arguments
view_arguments: ("(" arguments ")")?
dotted: NAME ("." NAME)*

where: ("where" expression)?
groups: ("group" "by" grouping ("," grouping)*)?
?grouping: expression
         | "rollup" "(" grouping ("," grouping)* ")"             -> rollup
         | "cube" "(" grouping ("," grouping)* ")"               -> cube
         | "grouping" "sets" "(" grouping ("," grouping)* ")"    -> grouping_sets
         | several
several: "(" ")" | "(" expression ("," expression)+ ")"
having: ("having" expression)?
order: ("order" "by" sorted ("," sorted)*)?
sorted: expression DIRECTION?
limit: "limit" signed ("offset" signed)? | "limit" signed "," signed -> limit_reversed | -> no_clause
delivery: ("for" NAME view_arguments)*

output: "output" after rate rate_terms and_terminated | -> no_clause
after: ("after" (period | events_count))?
rate: RATE?
rate_terms: "every" (period | events_count) | "at" crontab | when | terminated | -> no_clause
when: "when" expression then
terminated: "when" "terminated" ("and" expression)? then
and_terminated: ANDTERMINATED ("and" expression)? then | -> no_clause
then: ("then" "set" assignment ("," assignment)*)?
events_count: signed "events"
crontab: "(" arguments ")"

recognize: "match_recognize" "(" partition measures all_matches skip "pattern" "(" rows ")" interval define ")"
         | -> no_clause
partition: ("partition" "by" expression ("," expression)*)?
measures: "measures" measure ("," measure)*
measure: expression "as" NAME
all_matches: "all" "matches" -> yes | -> no
skip: ("after" "match" "skip" (skip_to_next | skip_to_current | skip_past))?
skip_to_next: "to" "next" "row"
skip_to_current: "to" "current" "row"
skip_past: "past" "last" "row"
interval: "interval" period or_terminated | -> no_clause
or_terminated: "or" "terminated" -> yes | -> no
define: ("define" definition ("," definition)*)?
definition: NAME "as" expression
?rows: row_sequence | rows BITS row_sequence                     -> row_either
?row_sequence: row_repeat | row_sequence row_repeat              -> row_then
?row_repeat: row_atom | row_atom repeats                         -> row_repeated
!repeats: STAR "?"? | PLUS "?"? | "?" "?"? | "{" NUMBER "}" | "{" NUMBER? "," NUMBER? "}"
?row_atom: NAME                                                  -> row_variable
         | "(" rows ")"                                          -> row_group
         | "match_recognize_permute" "(" rows ("," rows)* ")"    -> row_permute

// Patterns

?pattern: pattern_or | pattern followed pattern_or               -> followed_by
followed: "->" | "-[" expression "]" GREATER
?pattern_or: pattern_and | pattern_or "or" pattern_and           -> pattern_either
?pattern_and: until | pattern_and "and" until                    -> pattern_both
?until: qualified
      | qualified "until" qualified                              -> until
      | bounds qualified                                         -> repeated
      | bounds qualified "until" qualified                       -> repeated
bounds: "[" expression "]" | "[" low ":" high "]"                -> open_bounds
low: expression?
high: expression?
?qualified: guarded
          | "every" _operand                                     -> every
          | "every-distinct" "(" arguments ")" _operand          -> every_distinct
          | NOT _operand                                         -> never
_operand: qualified | every_bounded
every_bounded: bounds qualified                                  -> repeated
?guarded: pattern_atom
        | guarded "where" NAME ":" NAME view_arguments           -> guard
        | guarded "while" "(" expression ")"                     -> while_guard
?pattern_atom: events annotation*                                -> untagged
             | NAME EQUAL events annotation*                     -> tagged
             | NAME ":" NAME view_arguments                      -> observer
             | "(" pattern ")"

// Triggers

on_query: "on" trigger query
on_split: "on" trigger split+ ("output" RATE)?
split: head where
on_delete: "on" trigger "delete" "from" NAME alias where
on_update: "on" trigger "update" NAME alias assignments where
on_set: "on" trigger assignments
on_merge: "on" trigger "merge" "into"? NAME alias where branch+
trigger: _source alias
assignments: "set" assignment ("," assignment)*
assignment: postfix EQUAL expression | postfix
branch: "when" matched and_condition merge_action+
      | merge_insert                                             -> insert_branch
matched: NOT? "matched"
and_condition: ("and" expression)?
?merge_action: "then" merge_insert
             | "then" "update" assignments where                 -> merge_update
             | "then" "delete" where                             -> merge_delete
merge_insert: "insert" into names "select" item ("," item)* where
into: ("into" NAME)?
update: "update" SELECTOR dotted alias assignments where

// What is made

create_schema: "create" kind "schema" NAME "as"? schema_content schema_option*
             | "create" kind "schema" NAME schema_option+        -> create_schema_like
kind: NAME?
?schema_content: columns | dotted ("," dotted)* -> schema_types | STAR -> schema_types
columns: "(" ")" | "(" column ("," column)* ")"
column: NAME (type | call) primary_key annotation*
primary_key: "primary" "key" -> yes | -> no
type: dotted dimension*
dimension: "[" NAME? "]"
call: NAME "(" arguments ")"
schema_option: SCHEMAOPTION dotted ("," dotted)*
create_window: "create" "window" NAME view* RETAIN? "as"? window_content
?window_content: columns | dotted -> window_type | "select" item ("," item)* "from" dotted -> window_select
create_table: "create" "table" NAME "as"? columns
create_variable: "create" constant_mark "variable" type NAME (EQUAL expression)?
constant_mark: "constant" -> yes | -> no
create_index: "create" unique_mark "index" NAME "on" NAME "(" indexed ("," indexed)* ")"
unique_mark: "unique" -> yes | -> no
indexed: NAME NAME?
create_expression: "create" declaration

create_context: "create" "context" NAME "as"? (_context | nested)
_context: keyed | hashed | category | during | overlapping
keyed: "partition" "by"? key ("," key)* initiated ended
key: expression ("," expression)* "from" events alias
initiated: ("initiated" "by"? condition)?
ended: ("terminated" "by"? condition)?
hashed: "coalesce" "by"? hash ("," hash)* "granularity" NUMBER preallocate
hash: call "from" events
preallocate: "preallocate" -> yes | -> no
category: label ("," label)* "from" events
label: "group" "by"? expression "as" NAME
during: "start" condition ("end" condition)?
      | "start" annotation ("end" condition)?                    -> during_now
overlapping: "initiated" "by"? distinct_by now condition ended
           | "initiated" "by"? distinct_by annotation ended      -> overlapping_now
distinct_by: ("distinct" "(" expression ("," expression)* ")")?
now: (annotation "and")?
nested: inner_context (NEXTCONTEXT inner_name_context)+
inner_context: "context" inner_name_context
inner_name_context: NAME "as"? _context
?condition: events alias                                         -> when_event
          | pattern_source annotation* alias                     -> when_pattern
          | crontab                                              -> when_crontab
          | "after" period                                       -> when_after

// Expressions, the loosest first

?expression: conjunction | expression "or" conjunction           -> either
?conjunction: bits | conjunction "and" bits                      -> both
?bits: negation | bits BITS negation                             -> binary
?negation: equality | NOT negation                               -> unary
?equality: relation
         | equality _equal relation                              -> binary
         | equality _equal QUANTIFIER values                     -> quantified
_equal: EQUAL | UNEQUAL
?relation: joined
         | relation _less joined                                 -> binary
         | relation _less QUANTIFIER values                      -> quantified
         | relation negated LIKE joined escape                   -> alike
         | relation negated "between" joined "and" joined        -> between
         | relation negated "in" values                          -> within
         | relation negated "in" "(" expression ":" expression (closed | opened)    -> ranged_open
         | relation negated "in" "[" expression ":" expression (closed | opened)    -> ranged
_less: LESS | GREATER
negated: NOT?
closed: "]"
opened: ")"
escape: ("escape" joined)?
values: "(" expression ("," expression)* ")" | "(" query ")"     -> query_values
?joined: sum | joined JOINED sum                                 -> binary
?sum: product | sum _sign product                                -> binary
_sign: PLUS | MINUS
?product: signed | product _times signed                         -> binary
_times: STAR | DIVIDE
?signed: postfix | _sign signed                                  -> unary
?postfix: atom
        | postfix "." NAME                                       -> member
        | postfix "." NAME "(" arguments ")"                     -> method
        | postfix "." STAR                                       -> members
        | postfix "[" expression ("," expression)* "]"           -> element
        | postfix "?"                                            -> dynamic
?atom: NAME                                                      -> name
     | NAME "(" arguments ")"                                    -> call
     | NUMBER                                                    -> number
     | STRING                                                    -> string
     | LITERAL                                                  -> constant
     | PARAMETER                                                 -> parameter
     | "(" expression ")"                                        -> parenthesised
     | "(" query ")"                                             -> subquery
     | "exists" "(" query ")"                                    -> exists
     | "{" "}"                                                   -> array
     | "{" expression ("," expression)* "}"                      -> array
     | "{" pair ("," pair)* "}"                                  -> record
     | "new" "{" field ("," field)* "}"                          -> new
     | "case" when_then+ otherwise "end"                              -> case
     | "case" expression when_then+ otherwise "end"                   -> case_of
     | "cast" "(" expression ("," | "as") type cast_option* ")"  -> cast
pair: NAME ":" expression
field: NAME EQUAL expression | NAME
when_then: "when" expression "then" expression
otherwise: ("else" expression)?
cast_option: "," NAME ":" expression

arguments: | quantity argument ("," argument)*
quantity: "distinct" -> quantity_distinct | "all" -> quantity_all | -> quantity_none
?argument: expression
         | expression DIRECTION                                  -> ordered
         | expression LASTING                                    -> last_of
         | period
         | STAR                                                  -> star
         | STAR DIVIDE signed                                     -> every_nth
         | NUMBER ":" NUMBER                                     -> cron_range
         | "[" cron_item ("," cron_item)* "]"                    -> cron_list
         | NAME ":" (expression | several | period)              -> option
         | lambda_function
?cron_item: expression | NUMBER ":" NUMBER                       -> cron_range
lambda_function: NAME "=>" expression | LAMBDA NAME ("," NAME)* ")" "=>" expression
period: (sum UNIT)+
"""
