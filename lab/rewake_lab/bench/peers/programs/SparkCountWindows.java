import java.io.Serializable;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;

/** Count windows per item as Spark's users write them: flatMapGroupsWithState, rows put in order. */
public final class SparkCountWindows {
    private SparkCountWindows() {}

    /** A purchase; a bean, so that Spark generates its encoder. */
    public static final class Purchase implements Serializable {
        private int item_id;
        private int item_price;
        private Timestamp item_time;

        public int getItem_id() { return item_id; }
        public void setItem_id(int value) { item_id = value; }
        public int getItem_price() { return item_price; }
        public void setItem_price(int value) { item_price = value; }
        public Timestamp getItem_time() { return item_time; }
        public void setItem_time(Timestamp value) { item_time = value; }
    }

    /** The open window of an item. */
    public static final class Open implements Serializable {
        private int tuples;
        private long total;

        public int getTuples() { return tuples; }
        public void setTuples(int value) { tuples = value; }
        public long getTotal() { return total; }
        public void setTotal(long value) { total = value; }
    }

    /** What a window gives. */
    public static final class Closed implements Serializable {
        private int item_id;
        private double average;
        private Timestamp last;

        public int getItem_id() { return item_id; }
        public void setItem_id(int value) { item_id = value; }
        public double getAverage() { return average; }
        public void setAverage(double value) { average = value; }
        public Timestamp getLast() { return last; }
        public void setLast(Timestamp value) { last = value; }
    }

    /** The average of every `size` purchases of an item, and when the last of them was. */
    public static Dataset<Row> of(Dataset<Row> rows, int size) {
        MapFunction<Purchase, Integer> key = Purchase::getItem_id;
        FlatMapGroupsWithStateFunction<Integer, Purchase, Open, Closed> windows =
            (item, purchases, state) -> closed(item, purchases, state, size);
        return rows.as(Encoders.bean(Purchase.class))
            .groupByKey(key, Encoders.INT())
            .flatMapGroupsWithState(
                windows,
                OutputMode.Append(),
                Encoders.bean(Open.class),
                Encoders.bean(Closed.class),
                GroupStateTimeout.NoTimeout())
            .toDF();
    }

    private static Iterator<Closed> closed(
            int item, Iterator<Purchase> purchases, GroupState<Open> state, int size) {
        List<Purchase> rows = new ArrayList<>();
        purchases.forEachRemaining(rows::add);
        rows.sort(Comparator.comparing(Purchase::getItem_time));
        Open open = state.exists() ? state.get() : new Open();
        List<Closed> results = new ArrayList<>();
        for (Purchase row : rows) {
            open.setTuples(open.getTuples() + 1);
            open.setTotal(open.getTotal() + row.getItem_price());
            if (open.getTuples() == size) {
                Closed result = new Closed();
                result.setItem_id(item);
                result.setAverage((double) open.getTotal() / size);
                result.setLast(row.getItem_time());
                results.add(result);
                open.setTuples(0);
                open.setTotal(0);
            }
        }
        state.update(open);
        return results.iterator();
    }
}
